"""Advantage-weighted update of the turns that were played: PPO's clipped objective with a KL to π_{i−1}.

    L = −Σ min(ρ A, clip(ρ, 1−ε, 1+ε) A) + β KL(π ‖ π_{i−1}),   ρ = π(a|s) / π_{i−1}(a|s)

with a turn as the action, not a token (Schulman et al. 2017). The advantages are the caller's: by trajectory (GRPO), by
anchor state (GiGPO), :mod:`agentprm_core.credit.group`, or a process reward model's.

Shapes: ``P`` action tokens, ``J`` turns of a batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from transformers import PreTrainedModel

from agentprm_core.improve.kl import kl_sum
from agentprm_core.improve.reference import Reference, ReferredBatch
from agentprm_core.improve.sft import check_fits
from agentprm_core.policy.models import Checkpoint
from agentprm_core.training.attention import logits_of
from agentprm_core.training.columns import TrainColumns, Values
from agentprm_core.training.launch import fit
from agentprm_core.training.packing import Row
from agentprm_core.training.settings import TrainSettings
from agentprm_core.training.trainer import Batches, EpisodeTrainer, Losses
from agentprm_core.training.tree import branch_sums
from agentprm_core.types import Episode


@dataclass(frozen=True)
class GradientSettings(TrainSettings):
    beta: float = 0.03
    """Weight of the KL to π_{i−1}."""
    clip: float = 0.2
    """ε: how far a turn's probability ratio may move before it stops counting."""


@dataclass(frozen=True)
class GradientColumns(TrainColumns):
    """The loss weight is 1 at the end of each decided action."""

    is_end: Values
    """1 at the end of each decided action."""
    decided: Values
    """1 on all tokens of decided actions."""
    advantage: Values
    """The turn's, on all tokens of its action."""


def train_policy_gradient(
    episodes: Sequence[Episode],
    advantages: Sequence[np.ndarray],
    policy: Checkpoint,
    settings: GradientSettings,
    scratch: Path,
) -> tuple[PreTrainedModel, dict]:
    """Train ``policy.model`` in place on turns that it, as it comes (π_{i−1}), has played.

    Args:
        episodes: what was played.
        advantages: T values an episode. Turns of advantage 0 and replayed ones count for nothing, but for the KL.

    Returns:
        The model, and :func:`agentprm_core.training.trainer.fit`'s metrics; the curve also has ``kl`` (nats a turn) and
        ``clipped`` (share of turns).

    Raises:
        ValueError: no episodes, not one advantage a turn, an episode longer than the context, nothing trainable.
    """
    rows = [gradient_row(e, a, policy) for e, a in zip(episodes, advantages, strict=True)]
    return policy.model, fit(GradientTrainer(policy.model, rows, settings, scratch))


def gradient_row(episode: Episode, advantage_T: np.ndarray, policy: Checkpoint) -> Row[GradientColumns]:
    """The episode with its decided turns."""
    rendered = policy.renderer.episode(episode.turns)
    check_fits(len(rendered.input_ids), episode, policy.model)
    if len(advantage_T) != episode.length:
        raise ValueError(
            f"episode {episode.index} of {episode.game_id}: {len(advantage_T)} advantages for {episode.length} turns"
        )
    columns = GradientColumns.zeros(len(rendered.input_ids))
    for turn in range(episode.start, episode.length):
        own = slice(rendered.action_starts[turn], rendered.action_ends[turn] + 1)
        columns.loss_weight[own.stop - 1] = columns.is_end[own.stop - 1] = 1.0
        columns.decided[own], columns.advantage[own] = 1.0, advantage_T[turn]
    return Row(np.array(rendered.input_ids, dtype=np.int32), columns)


class GradientTrainer(EpisodeTrainer[GradientSettings]):
    """Adds π_{i−1}'s log-probabilities to every batch."""

    def __init__(self, model: PreTrainedModel, rows: Sequence[Row], settings: GradientSettings, scratch: Path) -> None:
        objective = partial(gradient_objective, beta=settings.beta, clip=settings.clip)
        super().__init__(model, rows, objective, settings, scratch)
        self._reference = Reference(model)

    def beside(self) -> dict:
        return {}

    @classmethod
    def again(cls, model, rows, settings, scratch: Path, beside: Mapping) -> GradientTrainer:
        return cls(model, rows, settings, scratch)

    def batches(self, step: int) -> Batches:
        return [self._reference.refer(batch, batch.columns.decided > 0) for batch in super().batches(step)]


def gradient_objective(
    model: torch.nn.Module, batch: ReferredBatch[GradientColumns], beta: float, clip: float
) -> Losses:
    """Σ over decided turns of the clipped surrogate's loss and β × KL, exact at each token of the action played
    (:mod:`agentprm_core.improve.kl`)."""
    decided_N, end_N = batch.columns.decided > 0, batch.columns.is_end
    logits_PV = logits_of(model, batch, decided_N)
    log_prob_P = -F.cross_entropy(logits_PV, batch.input_ids[decided_N], reduction="none")
    ratio_P = log_prob_P - batch.reference
    turn_P = (end_N.cumsum(0) - end_N)[decided_N].long()
    advantage_J = batch.columns.advantage[end_N > 0]
    ratio_J = branch_sums(ratio_P, turn_P, len(advantage_J)).exp()
    surrogate_J = torch.minimum(ratio_J * advantage_J, ratio_J.clamp(1 - clip, 1 + clip) * advantage_J)
    kl = kl_sum(logits_PV, batch)
    clipped = ((ratio_J - 1).abs() > clip).float().sum()
    metrics = {"kl": (kl.detach(), len(advantage_J)), "clipped": (clipped, len(advantage_J))}
    return Losses(beta * kl - surrogate_J.sum(), metrics)
