"""GiGPO (Feng et al. 2025, arXiv 2505.10978): the trajectory's advantage, and that of the turn among those in its
state.

**What it learns from.** The rollouts of π_{i−1}, several episodes a game: A = A^E + ω A^S. A^E is GRPO's. A^S compares
what the game's episodes did in the same ("anchor") state, by their discounted returns. No PRM takes part.

**How it updates.** As :mod:`agentprm_core.methods.grpo`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agentprm_core.config import Discount, NotNegative
from agentprm_core.credit.group import gigpo_advantages
from agentprm_core.methods.base import Collected, Given, Updated
from agentprm_core.methods.gradient import GradientConfig, collected, follow, turns_of


@dataclass(frozen=True, kw_only=True)
class Config(GradientConfig):
    """Parameters of ``method.name: gigpo``."""

    omega: NotNegative
    """ω: the weight of the step's advantage."""
    gamma: Discount
    """Discount of the returns that A^S compares."""
    visit_key: Literal["state", "history"]
    """What counts as the same state."""


def collect(config: Config, given: Given) -> Collected:
    """Rows of ADVANTAGES."""
    turns = turns_of(given)
    how = {"gamma": config.gamma, "omega": config.omega, "visit_key": config.visit_key}
    return collected(turns, gigpo_advantages(turns, **how))


def update(config: Config, given: Given) -> Updated:
    """The clipped update."""
    return follow(config, given)
