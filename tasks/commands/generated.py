"""The games that a command plays where none are named."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentprm_core.errors import DataError

if TYPE_CHECKING:
    from agentprm_core.types import Game
    from agentprm_core.worlds import WorldSpec

MEASURED = 200
"""Games of a measurement."""
WATCHED = 10
"""Games to look at one by one. They are among those of a measurement with the same seed."""


def generated(spec: WorldSpec, count: int, seed: int, split: str) -> list[Game]:
    """Those that the world makes. Raises DataError where it makes none, or none of this split; says what to give."""
    from agentprm_core.worlds.base import NoGenerator  # loads Arrow, which --help does not wait for
    from agentprm_core.worlds.game_sources import generated_by

    try:
        return generated_by(spec, count, seed, split)
    except NoGenerator:
        raise DataError(f"{spec.name} generates no games: give --games DIR and --split NAME") from None
    except DataError as error:
        published = "; for published games give --games DIR too" if spec.load else ""
        raise DataError(f"{error}{published}") from None


def watched(spec: WorldSpec, seed: int, split: str, asked: str | None) -> tuple[list[Game], int]:
    """Games to look at, and the number of the one that is ``asked`` for by its id or its place; None: the first. An id,
    and a place past the games to look at, may be that of any game of a measurement with the same seed. Raises DataError
    where there is none."""
    from agentprm_core.worlds.published import named_game  # loads Arrow, which --help does not wait for

    games = generated(spec, WATCHED, seed, split)
    if asked is None:
        return games, 0
    if asked not in {game.id for game in games} and not (asked.isdecimal() and int(asked) <= WATCHED):
        games = generated(spec, MEASURED, seed, split)
    where = f"the {len(games)} games that are generated of {spec.name}, {split}, seed {seed} (--games: others)"
    return games, games.index(named_game(games, asked, where))
