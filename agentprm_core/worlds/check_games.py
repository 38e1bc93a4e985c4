"""The games that a world is checked with (:mod:`agentprm_core.worlds.checking`): generated ones, or published ones."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from agentprm_core.errors import DataError
from agentprm_core.types import Game
from agentprm_core.worlds.base import NoGenerator, WorldSpec
from agentprm_core.worlds.check_spec import generated
from agentprm_core.worlds.game_sources import generated_by, loaded_by

_SHARED = Path("../shared/data/later")


class Checked(NamedTuple):
    """Games, and what was found before any was played."""

    by_split: dict[str, list[Game]]
    faults: list[str]
    root: Path | None = None
    """Where published ones lie; None: they are generated."""
    lacking: tuple[str, ...] = ()
    """What the world lacks that these have shown."""


def games_to_check(spec: WorldSpec, root: Path | None, count: int, seed: int, name: str) -> Checked:
    """``count`` games of each split: those of ``root``, or generated ones. A world without a generator has those of the
    environment variable ``NAME_DATA``, or of ../shared/data/later/NAME.tar.xz. ``name``: how another process finds the
    spec.

    Raises DataError where there are none; says what to give.
    """
    if root is None:
        try:
            return Checked(*generated(spec, count, seed, name))
        except NoGenerator:
            root = _published_root(spec)
    if spec.load is None:
        raise DataError(f"--root: {spec.name} has no published games")
    splits = spec.published_splits.items()
    games = {ours: loaded_by(spec, root, theirs, count) for ours, theirs in splits}
    return Checked(games, [], root, tuple(_no_generator(spec, seed)))


def _published_root(spec: WorldSpec) -> Path:
    variable, shared = f"{spec.name.upper()}_DATA", _SHARED / f"{spec.name}.tar.xz"
    named = os.environ.get(variable)
    if named is None and not shared.exists():
        raise DataError(
            f"{spec.name} has no generator: give --root, the folder or archive of its published games, or set "
            f"{variable} to it"
        )
    return Path(named) if named else shared


def _no_generator(spec: WorldSpec, seed: int) -> Iterator[str]:
    with suppress(DataError):  # whether it is right is not what is asked for
        try:
            generated_by(spec, 1, seed, "train")
        except NoGenerator:
            yield "no generator: games.published must say where the games are"
