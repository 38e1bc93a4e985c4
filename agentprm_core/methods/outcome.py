"""An outcome reward model (ORM; paper B, baselines): one score a trajectory.

**What it learns from.** The outcome of each episode, at its last action.

**How it learns.** Cross-entropy with the outcome. The labels that are written are Monte Carlo ones: it is validated
against them and does not learn from them.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentprm_core.methods.base import Given, Labels, TrainedPrm
from agentprm_core.methods.critic_base import CriticConfig, labelled_sides, monte_carlo_labels, train_on_labels


@dataclass(frozen=True, kw_only=True)
class Config(CriticConfig):
    """Parameters of ``critic.name: outcome``."""


def label(config: Config, given: Given) -> Labels:
    """Rows of LABELS to validate against."""
    return monte_carlo_labels(given, gamma=config.gamma, visit_key="state", outcome="binary")


def train(config: Config, given: Given) -> TrainedPrm:
    """From the last action of each episode."""
    sides = labelled_sides(given, gamma=config.gamma, outcome="binary")
    return train_on_labels(config, given, *sides, loss="outcome")
