"""AgentPRM by promise and progress (paper B §3.3, arXiv 2511.08325).

**What it learns from.** Whole episodes with their outcome r. A turn's promise is Q(s_t,a_t), its progress is
Q(s_t,a_t) − Q(s_{t−1},a_{t−1}). Targets come from the model's own scores M through TD errors and GAE:

    δ_t = γ M_t − M_{t−1},  δ_{T−1} = r − M_{T−2};   Â_t = Σ_k (γλ)^k δ_{t+k};   Q̂_t = Â_t + M_{t−1}

**How it learns.** ½ (M_t − Q̂_t)² + β ((M_t − M_{t−1}) − Â_t)². With β = 0 it is a value model without dependency
(PVM).

Departs from the paper in two ways. Targets are of each step by default (``targets: step``), the paper's are of each
epoch. M before the first turn is 0, which the paper leaves open. The labels that are written are Monte Carlo ones: the
PRM is validated against them and does not learn from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from agentprm_core.config import NotNegative, Range
from agentprm_core.methods.base import Given, Labels, TrainedPrm
from agentprm_core.methods.critic_base import CriticConfig, labelled_sides, monte_carlo_labels, train_on_labels


@dataclass(frozen=True, kw_only=True)
class Config(CriticConfig):
    """Parameters of ``critic.name: promise_progress``."""

    beta: NotNegative
    """Weight of the progress loss; 0 leaves it out."""
    gae_lambda: Annotated[float, Range(ge=0, le=1)]
    """λ of the generalised advantage."""
    targets: Literal["step", "epoch"]
    """When the model's scores make the targets anew."""


def label(config: Config, given: Given) -> Labels:
    """Rows of LABELS to validate against."""
    return monte_carlo_labels(given, gamma=config.gamma, visit_key="state", outcome="binary")


def train(config: Config, given: Given) -> TrainedPrm:
    """From the outcomes of whole episodes."""
    return train_on_labels(
        config,
        given,
        *labelled_sides(given, gamma=config.gamma, outcome="binary"),
        loss="promise_progress",
        beta=config.beta,
        gamma=config.gamma,
        gae_lambda=config.gae_lambda,
        targets=config.targets,
    )
