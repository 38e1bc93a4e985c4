"""The worlds that generate their games, in equal shares: one policy and one PRM learn them all."""

from __future__ import annotations

from agentprm_core.worlds.alfworld.spec import ALFWORLD
from agentprm_core.worlds.arithmetic.spec import ARITHMETIC
from agentprm_core.worlds.babyai.spec import BABYAI
from agentprm_core.worlds.mixture import mixture
from agentprm_core.worlds.textcraft.spec import TEXTCRAFT
from agentprm_core.worlds.webshop.spec import WEBSHOP

ALL_WORLDS = mixture("all_worlds", [ALFWORLD, TEXTCRAFT, BABYAI, WEBSHOP, ARITHMETIC])
"""Of another choice or other shares, make one of your own: ``env.world: my_module:SPEC``."""
