"""Training a process reward model: whole episodes in one pass, the score read at each action's end mark.

A turn costs its own tokens, not those of its whole history: twenty turns of an episode are one row, not twenty
(``python -m benchmarks.training``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from agentprm_core.errors import DataError
from agentprm_core.policy.prompt import Renderer
from agentprm_core.prm.losses import pair_weights, prm_objective, relative, soft_bce
from agentprm_core.prm.promise_progress import PromiseProgressTrainer
from agentprm_core.prm.rows import Labelled, check_sides, outcome_alone, prm_row, tried_alone
from agentprm_core.prm.score import score_episodes
from agentprm_core.prm.validation import validate
from agentprm_core.training.launch import fit
from agentprm_core.training.settings import TrainSettings
from agentprm_core.training.trainer import EpisodeTrainer

if TYPE_CHECKING:
    from transformers import PreTrainedModel

LOSSES = ("bce", "relative", "promise_progress", "outcome")
TARGETS = ("step", "epoch")


@dataclass(frozen=True)
class PrmSettings(TrainSettings):
    loss: str = "bce"
    """``bce``: soft cross-entropy with the labels (paper A). ``relative``: Bradley-Terry over actions tried at one
    state (paper A); the labels of an episode's own turns are not read. ``promise_progress``: L_Q + β L_A with GAE
    targets from the model itself (paper B). ``outcome``: cross-entropy with the outcome, at an episode's last action
    alone (ORM). The last two learn from whole episodes and read no other actions tried at their states."""
    margin: float = 0.03
    """``relative``: the least difference of Q̂ that makes a pair."""
    beta: float = 1.0
    """``promise_progress``: weight of the progress loss L_A; 0 gives a value model without dependency (PVM)."""
    gamma: float = 1.0
    """``promise_progress``: discount of the targets."""
    gae_lambda: float = 0.95
    """``promise_progress``: λ of the generalised advantage."""
    targets: str = "step"
    """``promise_progress``: when the model's scores make the targets anew, at each ``step`` or each ``epoch``."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.loss not in LOSSES:
            raise ValueError(f"loss: {self.loss!r} is not one of {', '.join(LOSSES)}")
        if self.targets not in TARGETS:
            raise ValueError(f"targets: {self.targets!r} is not one of {', '.join(TARGETS)}")


def train_prm(
    labelled: Iterable[Labelled],
    renderer: Renderer,
    prm: PreTrainedModel,
    settings: PrmSettings,
    scratch: Path,
    held_out: Sequence[Labelled] = (),
) -> tuple[PreTrainedModel, dict]:
    """Train ``prm`` (:func:`agentprm_core.prm.model.new_prm`, or one to go on with) in place.

    Args:
        labelled: episodes with their labels, of training games.
        held_out: labelled episodes of other games, to validate on.

    Returns:
        The model, and the metrics of :func:`agentprm_core.training.trainer.fit`; with ``held_out`` also
        ``validation``, see :func:`agentprm_core.prm.validation.validate`.

    Raises:
        DataError: nothing to train on, bad labels, a game on both sides, no two actions that differ (``relative``).
    """
    labelled = list(labelled)
    check_sides(labelled, held_out)
    trainer = _trainer(labelled, renderer, prm, settings, scratch)
    metrics = fit(trainer)
    if held_out:
        metrics["validation"] = validate_prm(prm, renderer, held_out, settings.batch_tokens)
    return prm, metrics


def validate_prm(prm: PreTrainedModel, renderer: Renderer, held_out: Sequence[Labelled], batch_tokens: int) -> dict:
    """:func:`agentprm_core.prm.validation.validate` over all labelled turns of ``held_out``."""
    score_N = np.concatenate(score_episodes(prm, renderer, [item.episode for item in held_out], batch_tokens))
    q_N = np.concatenate([item.q for item in held_out])
    won_N = np.concatenate([np.full(len(item.q), item.episode.won) for item in held_out])
    known_N = ~np.isnan(q_N)
    return validate(score_N[known_N], q_N[known_N], won_N[known_N])


def _trainer(labelled, renderer, prm, settings, scratch) -> EpisodeTrainer:
    if settings.loss == "promise_progress":
        rows = [prm_row(replace(item, tried=()), renderer) for item in labelled]  # an action beside is no turn
        return PromiseProgressTrainer(prm, rows, [item.episode.won for item in labelled], settings, scratch)
    if settings.loss == "outcome":
        labelled = [outcome_alone(item) for item in labelled]
    if settings.loss == "relative":
        labelled = [tried_alone(item) for item in labelled]
    rows = [prm_row(item, renderer) for item in labelled]
    loss = soft_bce
    if settings.loss == "relative":
        loss = partial(relative, margin=settings.margin)
        rows = [paired for row in rows if (paired := pair_weights(row, settings.margin))]
        if not rows:
            raise DataError(
                f"no state has two tried actions whose values differ by more than {settings.margin}: lower "
                "critic.margin, or try actions at more states (rollout.branch)"
            )
    return EpisodeTrainer(prm, rows, prm_objective(loss), settings, scratch)
