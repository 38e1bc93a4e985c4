"""GRPO (Shao et al. 2024): every turn gets the advantage of its trajectory, among the episodes of its game.

**What it learns from.** The rollouts of π_{i−1}, several episodes a game: A = (R − mean R) / std R over the game's
episodes. No PRM takes part.

**How it updates.** PPO's clipped objective with a KL to π_{i−1}
(:mod:`agentprm_core.improve.policy_gradient`). With ``refresh`` the policy plays anew every few steps, as in the paper;
without, it is one update of one set of rollouts.

Departs from the paper in that a probability ratio is of a turn's action, not of each token, and that the KL is exact.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentprm_core.credit.group import grpo_advantages
from agentprm_core.methods.base import Collected, Given, Updated
from agentprm_core.methods.gradient import GradientConfig, Rule, by_outcomes, collected, follow, turns_of


@dataclass(frozen=True, kw_only=True)
class Config(GradientConfig):
    """Parameters of ``method.name: grpo``."""


def collect(config: Config, given: Given) -> Collected:
    """Rows of ADVANTAGES."""
    turns = turns_of(given)
    return collected(turns, grpo_advantages(turns))


def update(config: Config, given: Given) -> Updated:
    """The clipped update."""
    return follow(config, given, Rule(by_outcomes(grpo_advantages), beta=config.beta))
