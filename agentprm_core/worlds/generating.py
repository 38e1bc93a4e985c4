"""The games of a world's generator: a stranger's, so what it raises or returns in place of games is one line."""

from __future__ import annotations

from agentprm_core.errors import DataError
from agentprm_core.types import Game
from agentprm_core.worlds.base import WorldSpec
from agentprm_core.worlds.raised import said_of


def generated_by(spec: WorldSpec, count: int, seed: int, split: str) -> list[Game]:
    """What ``spec.generate`` returns. Raises DataError for a generator that raises, or returns no games."""
    call = f"{spec.name}: generate({count}, {seed}, {split!r})"
    try:
        found = spec.generate(count, seed, split)
    except DataError:
        raise
    except (Exception, SystemExit) as error:  # a stranger's generator may raise anything
        raise DataError(f"{call} raised {said_of(error)}") from error
    if not isinstance(found, list) or not all(isinstance(game, Game) for game in found):
        raise DataError(f"{call} returned {found!r:.80}, not a list of games")
    if count and not found:
        raise DataError(f"{call} returned no games")
    return found
