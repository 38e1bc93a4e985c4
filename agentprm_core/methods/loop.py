"""LOOP (Chen et al. 2025, arXiv 2502.01600): leave-one-out PPO, without a critic.

**What it learns from.** The rollouts of π_{i−1}, several episodes a game. Every turn gets A_k = R_k − the mean R of the
game's other episodes. Nothing is divided by a standard deviation, so A is an unbiased estimate, and a game that is
nearly always won or lost counts for little. No PRM takes part.

**How it updates.** PPO's clipped objective, with the ratio of each token, several passes over one set of rollouts and
then fresh ones (``refresh``). There is no KL to any policy.

The paper leaves out episodes whose advantage is near 0, to save time; ``keeps: undecided`` leaves out those that have
none. Departs from the paper in that the clip is the only limit on a step, and that with ``refresh: null`` the first
policy is kept as a second set of weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agentprm_core.credit.group import loop_advantages
from agentprm_core.methods.base import Collected, Given, Updated
from agentprm_core.methods.gradient import ClippedConfig, Rule, by_outcomes, collected, follow, turns_of


@dataclass(frozen=True, kw_only=True)
class Config(ClippedConfig):
    """Parameters of ``method.name: loop``."""

    keeps: Literal["all", "undecided"]
    """``all``: every episode is read. ``undecided``: those of games that were both won and lost. The others have no
    gradient."""


def collect(config: Config, given: Given) -> Collected:
    """Rows of ADVANTAGES."""
    turns = turns_of(given)
    return collected(turns, loop_advantages(turns))


def update(config: Config, given: Given) -> Updated:
    """The clipped update."""
    return follow(config, given, Rule(by_outcomes(loop_advantages), level="token", keeps=config.keeps))
