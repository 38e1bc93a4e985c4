"""What the rest of the system knows of BabyAI."""

from __future__ import annotations

from math import nextafter

from agentprm_core.types import Game
from agentprm_core.worlds.babyai.levels import KINDS, LEVELS
from agentprm_core.worlds.babyai.world import DONE_ABOVE, BabyAI
from agentprm_core.worlds.base import Between, World, WorldSpec

BABYAI = WorldSpec(
    name="babyai",
    make=lambda: BabyAI(),
    generate=None,
    kinds=tuple(KINDS),
    instruction="",
)
