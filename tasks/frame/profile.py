"""Profiles: named overrides of params.yaml, in ``profiles/NAME.yaml``.

    dvc exp run $(python -m tasks.frame.profile smoke)     # as an experiment, by DVC's own means
    python -m tasks.frame.profile smoke --write            # into params.yaml, its comments kept
    python -m tasks.frame.profile alfworld games.published_root=DIR    # with overrides of one's own

The first form prints ``-S key=value`` for each override. Nothing that params.yaml may not hold is written or printed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import yaml
from ruamel.yaml import YAML

from agentprm_core.datasets import atomic_write
from tasks.frame.params import PARAMS, ParamsError, validate

PROFILES = Path("profiles")


def load_profile(name: str, folder: Path = PROFILES, more: Sequence[str] = ()) -> dict:
    """The overrides of a profile, and ``more`` over them (``rollout.games=100``).

    Raises:
        ParamsError: no such profile (names those there are), or more of another form.
    """
    path = folder / f"{name}.yaml"
    if not path.exists():
        there_are = ", ".join(sorted(found.stem for found in folder.glob("*.yaml"))) or "none"
        raise ParamsError(f"{path}: no such profile; there are: {there_are}")
    profile = yaml.safe_load(path.read_text())
    for one in more:
        key, equals, value = one.partition("=")
        if not equals:
            raise ParamsError(f"{one}: not an override like rollout.games=100")
        nested = yaml.safe_load(value)
        for part in reversed(key.split(".")):
            nested = {part: nested}
        overridden(profile, nested)
    return profile


def overridden(params: dict, overrides: Mapping) -> dict:
    """``params`` changed in place, key by key; a mapping goes deeper, anything else replaces."""
    for key, value in overrides.items():
        if isinstance(value, Mapping) and isinstance(params.get(key), Mapping):
            overridden(params[key], value)
        else:
            params[key] = value
    return params


def arguments(overrides: Mapping, prefix: str = "") -> Iterator[str]:
    """``key=value`` of each override, in Hydra's grammar, which ``dvc exp run -S`` reads."""
    for key, value in overrides.items():
        if isinstance(value, Mapping):
            yield from arguments(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}={_hydra(value)}"


def apply_profile(name: str, root: Path = Path(), more: Sequence[str] = ()) -> None:
    """Write the profile and ``more`` into ``root``'s params.yaml. Raises ParamsError where the result is not valid."""
    path = root / PARAMS
    keeper = YAML()
    keeper.preserve_quotes = True
    keeper.width = 200
    params = overridden(keeper.load(path), load_profile(name, root / PROFILES, more))
    validate(_plain(params), f"{PROFILES / name}.yaml over {PARAMS}")
    with atomic_write(path) as aside:
        keeper.dump(params, aside)


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
    if set(str(value)) & set(" \t'\"$`\\*?;&|<>(){}"):
        raise ParamsError(f"{value!r}: a profile's text is printed for the shell and must not need quotes")
    return str(value)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tasks.frame.profile", description="Named overrides of params.yaml."
    )
    parser.add_argument("name", help="of profiles/NAME.yaml")
    parser.add_argument("more", nargs="*", metavar="KEY=VALUE", help="further overrides: rollout.games=100")
    parser.add_argument("--write", action="store_true", help="change params.yaml instead of printing")
    asked = parser.parse_args()
    try:
        if asked.write:
            apply_profile(asked.name, more=asked.more)
        else:
            overrides = load_profile(asked.name, more=asked.more)
            validate(overridden(yaml.safe_load(PARAMS.read_text()), overrides), f"{PROFILES / asked.name}.yaml")
            print(" ".join(f"-S {argument}" for argument in arguments(overrides)))
    except ParamsError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
