"""The games that a world generates or reads. A stranger's code may raise or return anything: that is one line."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from agentprm_core.errors import EXPECTED, DataError
from agentprm_core.types import Game
from agentprm_core.worlds.base import WorldSpec
from agentprm_core.worlds.raised import said_of


def generated_by(spec: WorldSpec, count: int, seed: int, split: str) -> list[Game]:
    """What ``spec.generate`` returns. Raises DataError for a generator that raises, or returns no games."""
    call = f"{spec.name}: generate({count}, {seed}, {split!r})"
    return _some(count, call, _games(call, lambda: spec.generate(count, seed, split)))


def mixed_by(spec: WorldSpec, count: int, seed: int, places: Collection[int | str]) -> list[Game]:
    """What ``spec.generate_mixed`` returns, which the world must have. Raises as :func:`generated_by`."""
    assert spec.generate_mixed is not None
    mix, call = spec.generate_mixed, f"{spec.name}: generate_mixed({count}, {seed}, {len(places)} places)"
    return _some(count, call, _games(call, lambda: mix(count, seed, places)))


def loaded_by(spec: WorldSpec, root: Path, split: str, limit: int | None) -> list[Game]:
    """What ``spec.load`` returns, which the world must have. Raises DataError where it fails otherwise than by an
    error of :data:`agentprm_core.errors.EXPECTED`, which passes."""
    assert spec.load is not None
    load = spec.load
    return _games(f"{spec.name}: load({str(root)!r}, {split!r}, {limit})", lambda: load(root, split, limit), EXPECTED)


def _games(call: str, make: Callable[[], list[Game]], passes: tuple[type[Exception], ...] = (DataError,)) -> list[Game]:
    try:
        found = make()
    except passes:
        raise
    except (Exception, SystemExit) as error:  # a stranger's code may raise anything
        raise DataError(f"{call} raised {said_of(error)}") from error
    if not isinstance(found, list) or not all(isinstance(game, Game) for game in found):
        raise DataError(f"{call} returned {found!r:.80}, not a list of games")
    return found


def _some(count: int, call: str, found: list[Game]) -> list[Game]:
    if count and not found:
        raise DataError(f"{call} returned no games")
    return found
