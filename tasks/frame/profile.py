"""Profiles: named overrides of params.yaml, in ``profiles/NAME.yaml``.

    dvc exp run $(python -m tasks.frame.profile smoke)           # as an experiment, by DVC's own means
    python -m tasks.frame.profile smoke --write                  # into params.yaml, its comments kept
    python -m tasks.frame.profile promise_progress online_dpo rollout.games=100    # several, and overrides of one's own

The first form prints a ``-S`` for each difference. Nothing that params.yaml may not hold is written or printed. A
profile changes single keys; but ``critic``, ``method`` and ``model`` have other keys under another name, so a profile
that names another one has all of its keys."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import yaml

from agentprm_core.datasets import atomic_write
from tasks.frame.params import PARAMS, ParamsError, read_mapping, validate

PROFILES = Path("profiles")
_NAMED = {"critic": "name", "method": "name", "model": "source"}
"""Sections whose keys depend on one of them."""
_WHOLE = {"iterations": "1", "policies": "0"}
"""Section → its first entry. A profile that has that one has all of them: with fewer, fewer iterations are made.
Without it (``policies.2.prm=3``) single entries are changed."""


def load_profile(name: str, folder: Path = PROFILES) -> dict:
    """The overrides of a profile. Raises ParamsError where there is no such profile; names those there are."""
    path = folder / f"{name}.yaml"
    if not path.exists():
        there_are = ", ".join(sorted(found.stem for found in folder.glob("*.yaml"))) or "none"
        raise ParamsError(f"{path}: no such profile; there are: {there_are}")
    return read_mapping(path)


def asked_for(words: Sequence[str], folder: Path = PROFILES) -> list[dict]:
    """Overrides of each word: a profile's name, or one key (``rollout.games=100``)."""
    found = []
    for word in words:
        key, equals, value = word.partition("=")
        nested = _value(word, value) if equals else load_profile(word, folder)
        if equals and not key:
            raise ParamsError(f"{word!r}: no key before the =; as rollout.games=100")
        for part in reversed(key.split(".")) if equals else ():
            nested = {part: nested}
        found.append(nested)
    return found


def _value(word: str, value: str):
    try:
        return yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise ParamsError(f"{word!r}: the value is no YAML: {' '.join(str(error).split())}") from None


def overridden(params: dict, overrides: Mapping) -> dict:
    """``params`` changed in place, key by key; a mapping goes deeper, anything else replaces."""
    for key, value in overrides.items():
        there = params.get(key)
        if isinstance(value, Mapping) and isinstance(there, dict) and not _is_another(key, there, value):
            overridden(there, value)
        else:
            params[key] = value
    return params


def _is_another(section: str, there: Mapping, value: Mapping) -> bool:
    """Whether ``value`` is the block of another critic, method or kind of model, or a list of its own."""
    if section in _WHOLE:
        return _WHOLE[section] in value
    name = _NAMED.get(section)
    if name is None or name not in value or name not in there:
        return False
    if section == "model":
        return (value[name] == "scratch") != (there[name] == "scratch")
    return value[name] != there[name]


def differences(before: Mapping, after: Mapping, prefix: str = "") -> Iterator[str]:
    """What ``dvc exp run -S`` is to be told to make ``after`` of ``before``, in Hydra's grammar."""
    for key in [*before, *(key for key in after if key not in before)]:
        name = f"{prefix}{key}"
        if key not in after:
            if before[key] is None:
                yield f"{name}=0"  # Hydra takes a null for a key that is not there, and would not delete it
            yield f"~{name}"
        elif key not in before:
            yield f"++{name}={_hydra(after[key])}"
        elif isinstance(before[key], Mapping) and isinstance(after[key], Mapping):
            yield from differences(before[key], after[key], f"{name}.")
        elif before[key] != after[key] or type(before[key]) is not type(after[key]):
            yield f"{name}={_hydra(after[key])}"


def apply(words: Sequence[str], root: Path = Path()) -> None:
    """Write profiles and overrides into ``root``'s params.yaml. Raises ParamsError where the result is not valid."""
    from ruamel.yaml import YAML  # a machine that is lent for minutes reads profiles without it

    path = root / PARAMS
    keeper = YAML()
    keeper.preserve_quotes = True
    keeper.width = 200
    read_mapping(path)  # says what is wrong with the file
    params = keeper.load(path)
    for overrides in asked_for(words, root / PROFILES):
        overridden(params, overrides)
    validate(_plain(params), f"{' '.join(words)} over {PARAMS}")
    with atomic_write(path) as aside:
        keeper.dump(params, aside)


def checked(words: Sequence[str]) -> dict:
    """params.yaml with profiles and overrides; nothing is written. Raises ParamsError where that is not valid."""
    params = read_mapping(PARAMS)
    for overrides in asked_for(words):
        overridden(params, overrides)
    validate(params, " ".join(words))
    return params


def arguments(words: Sequence[str]) -> list[str]:
    """What ``dvc exp run -S`` is to be told. Raises ParamsError where the result would not be valid."""
    return list(differences(read_mapping(PARAMS), checked(words)))


def _plain(value):
    """Mappings and lists without what ruamel keeps of the file."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


def _hydra(value) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list):
        return f"[{','.join(map(_hydra, value))}]"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{_hydra(inner)}" for key, inner in value.items()) + "}"
    if set(str(value)) & set(" \t'\"$`\\*?;&|<>(){}"):
        raise ParamsError(f"{value!r}: a profile's text is printed for the shell and must not need quotes")
    return str(value)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tasks.frame.profile", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("words", nargs="+", metavar="NAME or KEY=VALUE", help="of profiles/NAME.yaml, or one key")
    parser.add_argument("--write", action="store_true", help="change params.yaml instead of printing")
    asked = parser.parse_args()
    try:
        if asked.write:
            apply(asked.words)
        else:
            print(" ".join(f"-S {argument}" for argument in arguments(asked.words)))
    except ParamsError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
