"""Households with one type of task kept out of training: what a campaign learns of a task that it never saw.

    sh experiments/run NAME no_memory \\
        env.world=benchmarks.held_out_types:NO_PICK_TWO env.code=benchmarks/held_out_types.py

The training games are of the other five types. Both held-out splits are of the sixth alone: ``seen`` on floor plans of
training, ``unseen`` on others. A campaign of all six types is measured on them by ``agentprm evaluate --games``.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from agentprm_core.types import Game
from agentprm_core.worlds.alfworld.kinds import TASK_TYPES
from agentprm_core.worlds.alfworld.spec import ALFWORLD
from agentprm_core.worlds.base import WorldSpec


def without(kind: str) -> WorldSpec:
    """Households whose training games are of any type but ``kind``, and whose held-out games are of ``kind`` alone.

    Raises ValueError for no type of ALFWorld's."""
    if kind not in TASK_TYPES:
        raise ValueError(f"{kind!r} is not one of {', '.join(TASK_TYPES)}")
    return replace(ALFWORLD, generate=_drawn(kind))


def _drawn(kind: str) -> Callable[[int, int, str], list[Game]]:
    def generate(count: int, seed: int, split: str) -> list[Game]:
        found: list[Game] = []
        asked = count
        while len(found) < count:
            asked *= 2
            drawn = ALFWORLD.generate(asked, seed, split)
            found = [game for game in drawn if (game.kind == kind) == (split != "train")]
        return sorted(random.Random(seed).sample(found, count), key=lambda game: game.id)

    return generate


NO_PICK_TWO = without("pick_two_obj_and_place")
