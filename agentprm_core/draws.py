"""Which training games an iteration plays: drawn by the seed once for the whole campaign."""

from __future__ import annotations

import random
from collections.abc import Sequence

from agentprm_core.types import Game


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
