"""AgentPRM with the relative (Bradley-Terry) loss (paper A, variants).

**What it learns from.** States where several actions were tried and each was played on from several times
(``rollout.branch.train_states``): pairs of these actions whose mean returns differ by more than ``margin``. The labels
of the rollouts' own turns are Monte Carlo ones. The PRM is validated against them and does not learn from them.

**How it learns.** −log σ(r_c − r_r) over the pairs, the better action first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from agentprm_core.config import NotNegative
from agentprm_core.errors import DataError
from agentprm_core.methods.base import Given, Labels, TrainedPrm
from agentprm_core.methods.critic_base import CriticConfig, labelled_sides, monte_carlo_labels, train_on_labels
from agentprm_core.prm.dataset import Labelled


@dataclass(frozen=True, kw_only=True)
class Config(CriticConfig):
    """Parameters of ``critic.name: relative``."""

    visit_key: Literal["state", "history"]
    """What counts as the same state."""
    outcome: Literal["binary", "signed"]
    """R ∈ {0, 1}, or R ∈ {−1, +1} mapped to [0, 1]."""
    margin: NotNegative
    """The least difference of Q̂ that makes a pair."""


def label(config: Config, given: Given) -> Labels:
    """Rows of LABELS: a label a turn of the rollouts."""
    return monte_carlo_labels(given, gamma=config.gamma, visit_key=config.visit_key, outcome=config.outcome)


def train(config: Config, given: Given) -> TrainedPrm:
    """Raises DataError where no two tried actions differ by the margin."""
    sides = labelled_sides(given, gamma=config.gamma, outcome=config.outcome)
    check_pairs(sides[0], config.margin, given.folders.branches)
    return train_on_labels(config, given, *sides, loss="relative", margin=config.margin)


def check_pairs(items: Sequence[Labelled], margin: float, where: Path) -> None:
    """Raises DataError where no state has two actions whose values differ enough."""
    for item in items:
        values: dict[int, list[float]] = defaultdict(list)
        for tried in item.tried:
            values[tried.turn].append(tried.q)
        if any(max(found) - min(found) > margin for found in values.values()):
            return
    raise DataError(
        f"{where}: no state of a training game has two tried actions whose values differ by more than critic.margin, "
        f"{margin}, and critic relative learns from nothing else. Try actions at more of them "
        "(rollout.branch.train_states, rollout.branch.temperature), lower critic.margin, or set "
        "critic.name: monte_carlo"
    )
