"""Profiles: named overrides of params.yaml, in ``profiles/NAME.yaml``.

    dvc exp run $(python -m tasks.frame.profile smoke)           # as an experiment, by DVC's own means
    python -m tasks.frame.profile smoke --write                  # into params.yaml, its comments kept
    python -m tasks.frame.profile promise_progress online_dpo rollout.games=100    # several, and overrides of one's own

The first form prints a ``-S`` for each difference. Nothing that params.yaml may not hold is written or printed. A
profile changes single keys; but ``critic``, ``method`` and ``model`` have other keys under another name, so a profile
that names another one has all of its keys. The ``model`` of a profile that sets ``env.world``, and no ``model.source``,
is the size of one from scratch: a language model keeps its own."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

import yaml

from agentprm_core.datasets import atomic_write
from agentprm_core.errors import nearest
from tasks.frame.params import PARAMS, ParamsError, read_mapping, validate
from tasks.frame.sections import Params

PROFILES = Path("profiles")
_NAMED = {"critic": "name", "method": "name", "model": "source"}
"""Sections whose keys depend on one of them."""
_WHOLE = {"iterations": "1", "policies": "0"}
"""Section → its first entry. A profile that has that one has all of them: with fewer, fewer iterations are made.
Without it (``policies.2.prm=3``) single entries are changed."""
_SIZES = {"width", "layers", "heads", "context", "max_action_tokens"}
"""Keys of a model from scratch that a world's profile sets to what its episodes need."""
_OF_SCRATCH = {"model", "sft", "rollout", "method"}
"""Sections that a world's profile sets to what a policy from scratch needs to learn in it."""


Read = Callable[[Path], dict]
"""What makes a mapping of a file."""


def load_profile(name: str, folder: Path = PROFILES, read: Read = read_mapping) -> dict:
    """The overrides of a profile. Raises ParamsError where there is no such profile; says what was meant, or which
    there are."""
    path, there_are = folder / f"{name}.yaml", sorted(found.stem for found in folder.glob("*.yaml"))
    if name in there_are:  # not by the path: some file systems find SMOKE.yaml too
        return read(path)
    bare = Path(name).stem
    if bare in there_are and name in (f"{bare}.yaml", f"{PROFILES / bare}.yaml"):
        raise ParamsError(f"{name!r}: a profile is named without folder and ending: {bare}")
    if name.partition(".")[0] in Params.__dataclass_fields__:
        raise ParamsError(f"{name!r}: no such profile; a key is given with its value: {name}=VALUE")
    near = nearest(name, there_are)
    meant = f"did you mean {near}?" if near else f"there are: {', '.join(there_are) or 'none'}"
    raise ParamsError(f"{path}: no such profile; {meant}")


def asked_for(words: Sequence[str], folder: Path = PROFILES, read: Read = read_mapping) -> list[dict]:
    """Overrides of each word: a profile's name, or one key (``rollout.games=100``)."""
    found = []
    for word in words:
        key, equals, value = word.partition("=")
        nested = _value(word, value) if equals else load_profile(word, folder, read)
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
    """``params`` changed in place, key by key; a mapping goes deeper, anything else replaces. What is equal stays as it
    is written. What a world's profile sets for a policy from scratch changes nothing of another kind of model's."""
    skipped = _OF_SCRATCH if _sized_for_scratch(params, overrides) else set()
    for key, value in overrides.items():
        there = params.get(key)
        if key in skipped:
            continue
        if isinstance(value, Mapping) and isinstance(there, dict) and not _is_another(key, there, value):
            overridden(there, value)
        elif key not in params or there != value or isinstance(there, bool) != isinstance(value, bool):
            params[key] = value
    return params


def _sized_for_scratch(params: Mapping, overrides: Mapping) -> bool:
    """Whether ``overrides`` are a world's, whose ``model`` has nothing but sizes of one from scratch, and ``params``
    have another kind of model."""
    sizes, there = overrides.get("model"), params.get("model")
    if not (_names_world(overrides) and isinstance(sizes, Mapping) and isinstance(there, Mapping)):
        return False
    return set(sizes) <= _SIZES and there.get("source") != "scratch"


def composed(
    params: dict, words: Sequence[str], name: str, folder: Path = PROFILES, read: Read = read_mapping
) -> Params:
    """``params`` changed in place by each word in turn, and what they say then. Raises ParamsError where that is not
    valid: its line starts with ``name``, or says which word does not fit to those before it."""
    chosen: dict[str, _Choice] = {}
    for word, overrides in zip(words, asked_for(words, folder, read), strict=True):
        _require_fitting(word, overrides, params, chosen)
        overridden(params, overrides)
    try:
        return validate(_plain(params), name)
    except ParamsError:
        for section, choice in chosen.items():
            key, _, value = choice.word.partition("=")
            if key == f"{section}.name" and (folder / f"{value}.yaml").exists():
                said = f"{choice.word}: another {section} has other keys; in its place use the profile {value}"
                raise ParamsError(said) from None
        raise


@dataclass(frozen=True)
class _Choice:
    """A word that chose another critic, method or kind of model."""

    word: str
    before: Set[str]
    """The keys that the one before had."""
    names_world: bool


def _require_fitting(word: str, overrides: Mapping, params: Mapping, chosen: dict[str, _Choice]) -> None:
    """Refuse a profile with keys that the critic, method or model that there is does not have. ``chosen``: by which
    words; what ``overrides`` choose is added."""
    env, world = overrides.get("env"), _names_world(overrides)
    for section, name in _NAMED.items():
        there, value = params.get(section), overrides.get(section)
        if not isinstance(there, Mapping) or not isinstance(value, Mapping):
            continue
        if _is_another(section, there, value):
            chosen[section] = _Choice(word, {*there}, world)
            continue
        if name in value or "=" in word or (section in _OF_SCRATCH and _sized_for_scratch(params, overrides)):
            continue
        for key in (key for key in value if key not in there):
            last = chosen.get(section)
            if last is None or key not in last.before:
                todo = "give those of its keys that fit one by one, as rollout.games=100"
            elif world and last.names_world and isinstance(env, Mapping):
                own = " ".join(f"env.{one}={said}" for one, said in env.items())
                todo = f"put {word} before {last.word}, and after both {own}"
            else:
                todo = f"put {word} before {last.word}"
            which = f"{section}.{name} {there.get(name)}"
            raise ParamsError(f"{PROFILES / word}.yaml sets {section}.{key}, which {which} does not have: {todo}")


def _names_world(overrides: Mapping) -> bool:
    env = overrides.get("env")
    return isinstance(env, Mapping) and "world" in env


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
    from ruamel.yaml import YAML, RoundTripRepresenter  # a machine that is lent for minutes reads profiles without it

    class Representer(RoundTripRepresenter):
        """Of its own: DVC uses ruamel's in the same process."""

    Representer.add_representer(type(None), lambda own, _: own.represent_scalar("tag:yaml.org,2002:null", "null"))
    path = root / PARAMS
    keeper = YAML()
    keeper.Representer = Representer
    keeper.preserve_quotes = True
    keeper.width = 1 << 16  # a line is never broken

    def read(file: Path) -> dict:
        read_mapping(file)  # says what is wrong with it
        return keeper.load(file)

    before, params = read_mapping(path), read(path)
    composed(params, words, f"{' '.join(words)} over {PARAMS}", root / PROFILES, read)
    _move_comments(params, before)
    with atomic_write(path) as aside:
        keeper.dump(params, aside)


def _move_comments(params, before: Mapping) -> None:
    """One space before the comment of what is not as it was ``before``; ruamel keeps the column that it stood in."""
    for key, value in params.items():
        there = before.get(key)
        if isinstance(value, Mapping) and isinstance(there, Mapping):
            _move_comments(value, there)
        elif value != there and (comment := params.ca.items.get(key, [None] * 3)[2]):
            comment.column = 0


def checked(words: Sequence[str]) -> dict:
    """params.yaml with profiles and overrides; nothing is written. Raises ParamsError where that is not valid."""
    params = read_mapping(PARAMS)
    composed(params, words, " ".join(words))
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
