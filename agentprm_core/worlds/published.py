"""Games on disk, whoever wrote them: tables of the stage ``games``, or a world's published data."""

from __future__ import annotations

import difflib
import tarfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from agentprm_core.datasets import games_from_table, read_table
from agentprm_core.draws import sample_of
from agentprm_core.errors import EXPECTED, DataError
from agentprm_core.types import GAMES, Game
from agentprm_core.worlds import WorldSpec, world_names, world_spec
from agentprm_core.worlds.base import NoSplit
from agentprm_core.worlds.game_sources import loaded_by


def find_games(world: str, root: Path, split: str, limit: int | None = None) -> list[Game]:
    """The games of ``split``: of a table ``root/split.parquet`` where there is one, else of the published data. There
    ``split`` is the data's own name, or ours (``WorldSpec.published_splits``).

    With a ``limit`` a sample of it that mixes kinds (:func:`agentprm_core.draws.sample_of`).

    Raises DataError for what holds no games, for a split without games, and where the games are another world's.
    """
    table, spec = root / f"{split}.parquet", world_spec(world)
    if not root.exists():
        raise DataError(f"{root}: no such folder")
    if root.is_file() and not tarfile.is_tarfile(root):
        raise DataError(f"{root}: neither a folder of tables ({table.name}) nor one of published games")
    if table.exists():
        found = sample_of(games_from_table(read_table(table, GAMES)), limit)
    else:
        try:
            found = _published(spec, root, split, limit)
        except EXPECTED as error:
            if there := sorted(path.stem for path in root.glob("*.parquet")):
                raise DataError(f"{root}: no split {split!r}; there are tables of {', '.join(there)}") from error
            if other := _whose(root, split, spec):
                raise DataError(
                    f"{root}, {split}: these are games of {other}, not of {spec.name}: take a policy that was trained "
                    f"in {other} (and --world {other}), or games of {spec.name}"
                ) from error
            if isinstance(error, NoSplit):
                ours = [name for name in spec.published_splits if name not in error.there]
                raise DataError(", ".join([str(error), *ours])) from error
            if isinstance(error, FileNotFoundError):
                raise DataError(f"{root}: neither a table {table.name} nor published games there: {error}") from error
            raise
    if not found:
        raise DataError(f"{root}, {split}: no games there")
    return found


def _published(spec: WorldSpec, root: Path, split: str, limit: int | None) -> list[Game]:
    if spec.load is None:
        table = root / f"{split}.parquet"
        raise DataError(f"{table}: no such table, and {spec.name} has no published games to read instead")
    theirs = spec.published_splits.get(split, split)
    try:
        return loaded_by(spec, root, split, limit)
    except EXPECTED:
        if theirs == split:
            raise
        return loaded_by(spec, root, theirs, limit)


def _whose(root: Path, split: str, spec: WorldSpec) -> str:
    """A world with other texts than that of ``spec`` whose published games lie in ``root``; empty: there is none."""
    others = [other for name in world_names() if (other := world_spec(name)).load and other.texts != spec.texts]
    for other in others:
        with suppress(*EXPECTED):
            if _published(other, root, split, 1):
                return other.name
    return ""


def world_of_games(root: Path, split: str) -> str:
    """The world that all games of a table are of: ``root/split.parquet``, or ``root`` itself. Empty where there is no
    such table, and where they are of several worlds."""
    table = root if root.is_file() else root / f"{split}.parquet"
    if not table.is_file() or table.suffix != ".parquet":
        return ""
    worlds = set(read_table(table, GAMES)["world"].to_pylist())
    return worlds.pop() if len(worlds) == 1 else ""


def named_game(games: Sequence[Game], asked: str, where: str) -> Game:
    """The game of this id, or at this place, counted from 1. Raises as :func:`named_id`."""
    ids = [game.id for game in games]
    return games[ids.index(named_id(ids, asked, where))]


def named_id(ids: Sequence[str], asked: str, where: str) -> str:
    """The one of ``ids`` that is ``asked`` for: itself, or its place, counted from 1. Raises DataError where ``where``
    has none; offers the nearest, or says how many there are."""
    if asked in ids:
        return asked
    if asked.isdecimal() and 1 <= int(asked) <= len(ids):
        return ids[int(asked) - 1]
    near = "" if asked.isdecimal() else f"the nearest: {', '.join(_nearest(ids, asked))}; or "
    raise DataError(f"{asked}: no such game in {where}; {near}a place from 1 to {len(ids)}")


def _nearest(ids: Sequence[str], asked: str) -> list[str]:
    """Three ids: those that have ``asked`` in them, then those that are most like it."""
    within = [name for name in ids if asked.lower() in name.lower()]
    like = difflib.get_close_matches(asked, ids, n=3, cutoff=0.0)
    return list(dict.fromkeys([*within, *like]))[:3]
