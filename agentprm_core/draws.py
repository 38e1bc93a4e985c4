"""Which games are demonstrated, which an iteration plays, and which of a split are a sample of it."""

from __future__ import annotations

import random
from collections.abc import Sequence

from agentprm_core.seeding import episode_seed, unit
from agentprm_core.types import Game


def demonstrated(games: Sequence[Game], count: int, *, seed: int) -> list[Game]:
    """The ``count`` games whose demonstrations the first policy imitates, sorted by id.

    The draw knows nothing of :func:`share_of`'s: a game that is played later was demonstrated as often as any other.
    """
    drawn = random.Random(episode_seed(seed, "demonstrated")).sample(list(games), count)
    return sorted(drawn, key=lambda game: game.id)


def share_of(games: Sequence[Game], count: int, *, seed: int, iteration: int, backwards: bool = False) -> list[Game]:
    """The ``count`` games of an iteration (from 1), sorted by id; all of them in every iteration where that is the
    count.

    Games are drawn by the seed once for the whole campaign. An iteration goes on where the one before it stopped.
    ``backwards``: from the other end of that order.
    """
    order = random.Random(seed).sample(list(games), len(games))
    if backwards:
        order.reverse()
    first = (iteration - 1) * count
    return sorted((order[(first + i) % len(order)] for i in range(count)), key=lambda game: game.id)


def sample_of(games: Sequence[Game], limit: int | None) -> list[Game]:
    """``limit`` of the games, or all of them where it is None or more than there are; sorted by id.

    Drawn by digests of the ids: it mixes kinds and places, a smaller sample is part of a larger one, and every machine
    draws the same.
    """
    drawn = games if limit is None else sorted(games, key=lambda game: unit(game.id, 0))[:limit]
    return sorted(drawn, key=lambda game: game.id)
