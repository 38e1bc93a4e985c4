"""AgentPRM with Monte Carlo targets (paper A §2, arXiv 2502.10325).

**What it learns from.** The rollouts of π_{i−1}. Q̂(s,a) is the mean return over all visits to (s,a):

    Q̂(s,a) = mean over visits of γ^{T−1−t} R

Visits are found through a hash map. With ``visit_key: history`` a state is all that was seen and done in the episode,
as in the paper; with ``state`` it is the world's own state, which merges histories. Actions tried at branched states
(``rollout.branch``) are further labelled actions.

**How it learns.** Cross-entropy with the soft label (paper A, eq. 3): −E[Q̂ log Q_φ + (1 − Q̂) log(1 − Q_φ)].

``shaping`` blends the labels with the advantage of a reference policy (paper A, variants). It is meant for few
rollouts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

import numpy as np

from agentprm_core.config import Range
from agentprm_core.credit.shaping import scored_values, shaped_labels, visited_values
from agentprm_core.credit.turns import Turns
from agentprm_core.methods.base import Given, Labels, TrainedPrm
from agentprm_core.methods.critic_base import CriticConfig, labelled_sides, monte_carlo_labels, train_on_labels
from agentprm_core.policy.models import load_checkpoint
from agentprm_core.prm.score import score_episodes

_SCORING_TOKENS = 4096
"""Of a forward pass."""


@dataclass(frozen=True)
class Shaping:
    """Labels with the advantage of a reference policy μ."""

    kind: Literal["blend", "potential"]
    """``blend``: (1−α) Q̂ + α (A^μ + 1)/2 (paper A). ``potential``: as the reference code does."""
    alpha: Annotated[float, Range(ge=0, le=1)]
    """Of ``blend``."""
    reference: str | None
    """The folder of a PRM of μ; null: the policy that played is μ, by its visits."""


@dataclass(frozen=True, kw_only=True)
class Config(CriticConfig):
    """Parameters of ``critic.name: monte_carlo``."""

    visit_key: Literal["state", "history"]
    """What counts as the same state."""
    outcome: Literal["binary", "signed"]
    """R ∈ {0, 1}, or R ∈ {−1, +1} mapped to [0, 1] (paper A)."""
    shaping: Shaping | None
    """null: labels are not shaped."""

    def __post_init__(self) -> None:
        if self.shaping and self.shaping.kind == "blend" and self.outcome != "binary":
            raise ValueError(f"outcome: {self.outcome!r} is not allowed: binary where shaping is a blend")


def label(config: Config, given: Given) -> Labels:
    """Rows of LABELS: a label a turn of the rollouts."""
    shaped = partial(_shaped, config, config.shaping, given) if config.shaping else None
    return monte_carlo_labels(
        given, gamma=config.gamma, visit_key=config.visit_key, outcome=config.outcome, shaped=shaped
    )


def train(config: Config, given: Given) -> TrainedPrm:
    """Soft cross-entropy on the turns and on the actions tried beside them."""
    sides = labelled_sides(given, gamma=config.gamma, outcome=config.outcome)
    return train_on_labels(config, given, *sides, loss="bce")


def _shaped(
    config: Config, shaping: Shaping, given: Given, turns: Turns, q_N: np.ndarray, side_N: np.ndarray
) -> np.ndarray:
    """Labels shaped with V^μ of the rollouts' own policy, or of the one whose PRM ``reference`` is."""
    if shaping.reference is None:
        value_N = visited_values(turns, visit_key=config.visit_key, side_N=side_N, gamma=config.gamma)
    else:
        prm = load_checkpoint(shaping.reference, kind="prm", device=given.device)
        scores = score_episodes(prm.model, prm.renderer, given.episodes, _SCORING_TOKENS)
        value_N = scored_values(np.concatenate(scores), turns, gamma=config.gamma)
    return shaped_labels(
        turns,
        q_N,
        value_N,
        shaping=shaping.kind,
        alpha=shaping.alpha,
        gamma=config.gamma,
        visit_key=config.visit_key,
        side_N=side_N,
    )
