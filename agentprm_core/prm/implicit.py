"""An implicit process reward model, trained on labels: what it says of an action is how much likelier it has become.

    r_φ(s,a) = κ [log π_φ(a|s) − log π(a|s)]
    logit Q_φ(s_t,a_t) = b + Σ_{i≤t} r_φ(s_i,a_i)

π is the policy that played, and π_φ starts as it. So Q_φ is σ(b) everywhere at first, where b is the logit of the mean
label. A step's reward is then what an action adds to the logit of Q, and a language model trained on outcomes alone has
step rewards (Yuan et al., arXiv 2412.01981, Proposition 3.1, with cross-entropy; PRIME, arXiv 2502.01456). Those papers
have b = 0 and outcomes. With ``turns`` every label is learnt from, also those of other actions tried at a state (ours).

The candidates of one state share what came before. So Best-of-N by turn and beams of width 1 need r_φ alone, and that
is what the scorer ``implicit`` reads (:mod:`agentprm_core.search.scorers`). A wider beam compares actions at different
states, and the scorer leaves out what came before them. Likelihoods are over the whole vocabulary, there as here.

Shapes: ``N`` packed tokens, ``M`` actions that are read in a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F

from agentprm_core.errors import DataError
from agentprm_core.policy.prompt import Renderer
from agentprm_core.prm.model import action_logits, likelihood_weight
from agentprm_core.prm.ranking import MARGIN, ranking_accuracy
from agentprm_core.prm.rows import Labelled, PrmColumns, check_sides, prm_row
from agentprm_core.prm.score import read_rows
from agentprm_core.prm.validation import validate
from agentprm_core.training.columns import Values
from agentprm_core.training.launch import fit
from agentprm_core.training.packing import Batch, Row
from agentprm_core.training.settings import TrainSettings
from agentprm_core.training.trainer import EpisodeTrainer, Losses

if TYPE_CHECKING:
    from transformers import PreTrainedModel

LABELS = ("turns", "outcome")


@dataclass(frozen=True)
class ImplicitColumns(PrmColumns):
    """What is known of an action that is read."""

    old: Values
    """There, κ log π(a|s)."""
    own: Values
    """1 at the episode's own actions, 0 at others tried at its states."""


def implicit_rows(
    items: Sequence[Labelled], renderer: Renderer, model: PreTrainedModel, batch_tokens: int, labels: str = "turns"
) -> list[Row[ImplicitColumns]]:
    """The episodes as rows, with what ``model`` says of their actions now, before it is trained.

    ``labels``: ``turns`` learns from every label, ``outcome`` from whether the episode was won, at its last action.
    """
    if labels == "outcome":
        items = [replace(item, tried=()) for item in items]
    items = [item for item in items if item.tried or not np.isnan(item.q).all()]  # others teach nothing
    rows = [_with_own(prm_row(item, renderer)) for item in items]
    said = read_rows(model, rows, batch_tokens, lambda logit_M, _: logit_M, head=False)
    for row, item, old_M in zip(rows, items, said, strict=True):
        columns, read_L = row.columns, row.columns.is_scored > 0
        columns.old[read_L] = old_M
        if labels == "outcome":
            last = int(np.flatnonzero(read_L)[-1])
            columns.loss_weight[:] = 0.0
            columns.loss_weight[last], columns.q[last] = 1.0, float(item.episode.won)
    return rows


def implicit_logits(logit_M: torch.Tensor, batch: Batch[ImplicitColumns], offset: float) -> torch.Tensor:
    """(M,) logits of Q_φ of κ log π_φ. ``offset``: b. Turns without a label are not read, and add nothing."""
    columns, read_N = batch.columns, batch.columns.is_scored > 0
    reward_M = logit_M - columns.old[read_N]
    row_M, turn_M, own_M = batch.row[read_N], columns.state[read_N], columns.own[read_N]
    before_MM = (row_M[:, None] == row_M[None, :]) & (turn_M[None, :] < turn_M[:, None])
    return offset + reward_M + (before_MM * own_M[None, :]) @ reward_M


def implicit_objective(model: torch.nn.Module, batch: Batch[ImplicitColumns], offset: float) -> Losses:
    """−Σ [Q̂ log Q_φ + (1 − Q̂) log(1 − Q_φ)] over the actions that have a loss weight."""
    read_N = batch.columns.is_scored > 0
    logit_M = implicit_logits(action_logits(model, batch, head=False), batch, offset)
    weight_M = batch.columns.loss_weight[read_N]
    total = (weight_M * F.binary_cross_entropy_with_logits(logit_M, batch.columns.q[read_N], reduction="none")).sum()
    return Losses(total, {"prm_loss": (total.detach(), weight_M.sum())})


def train_implicit_prm(
    labelled: Sequence[Labelled],
    renderer: Renderer,
    model: PreTrainedModel,
    settings: TrainSettings,
    scratch: Path,
    *,
    labels: str = "turns",
    held_out: Sequence[Labelled] = (),
) -> dict:
    """Train ``model`` (:func:`agentprm_core.prm.model.new_prm`, κ above 0) in place. Its value head stays at 0.

    Args:
        labelled: episodes with their labels, of training games.
        labels: as in :func:`implicit_rows`.
        held_out: labelled episodes of other games, to validate on.

    Returns:
        The metrics of :func:`agentprm_core.training.trainer.fit`, and ``offset``, which is b. With ``held_out`` also
        ``validation`` (:func:`agentprm_core.prm.validation.validate`, of Q_φ) and ``ranking``
        (:func:`agentprm_core.prm.ranking.ranking_accuracy`).

    Raises:
        DataError: nothing to train on, bad labels, labels that are all 0 or all 1, a game on both sides.
        ValueError: ``labels`` is none of :data:`LABELS`, or κ is 0.
    """
    if labels not in LABELS:
        raise ValueError(f"labels: {labels!r} is not one of {', '.join(LABELS)}")
    if not likelihood_weight(model):
        raise ValueError("an implicit PRM needs a κ above 0")
    check_sides(labelled, held_out)
    rows = implicit_rows(labelled, renderer, model, settings.batch_tokens, labels)
    if not rows:
        raise DataError("no labelled action to train on: raise rollout.games")
    others = implicit_rows(held_out, renderer, model, settings.batch_tokens)
    q_N, weight_N = (np.concatenate([getattr(row.columns, name) for row in rows]) for name in ("q", "loss_weight"))
    mean = np.average(q_N, weights=weight_N)
    if not 0 < mean < 1:
        raise DataError(f"the mean label is {mean:g}: nothing to tell apart")
    offset = float(np.log(mean / (1 - mean)))
    metrics: dict[str, Any] = fit(
        EpisodeTrainer(model, rows, partial(implicit_objective, offset=offset), settings, scratch)
    )
    metrics["offset"] = offset
    if others:
        metrics |= _judged(model, others, held_out, settings, offset)
    return metrics


def _judged(
    model: PreTrainedModel,
    rows: Sequence[Row[ImplicitColumns]],
    items: Sequence[Labelled],
    settings: TrainSettings,
    offset: float,
) -> dict:
    told = partial(implicit_logits, offset=offset)
    said = read_rows(model, rows, settings.batch_tokens, told, head=False)
    own = [row.columns.own[row.columns.is_scored > 0] > 0 for row in rows]
    own_N = np.concatenate([logit_M[own_M] for logit_M, own_M in zip(said, own, strict=True)])
    score_N = torch.from_numpy(own_N).sigmoid().numpy()
    q_N = np.concatenate([item.q[~np.isnan(item.q)] for item in items])
    won_N = np.concatenate([np.full((~np.isnan(item.q)).sum(), item.episode.won) for item in items])
    tried = [(number, one) for number, item in enumerate(items) for one in item.tried]
    ranking = ranking_accuracy(
        [f"{number}/{one.turn}" for number, one in tried],
        np.array([one.returns for _, one in tried]),
        np.concatenate([logit_M[~own_M] for logit_M, own_M in zip(said, own, strict=True)]),
        margin=MARGIN,
        seed=settings.seed,
        game_N=[items[number].episode.game_id for number, _ in tried],
    )
    return {"validation": validate(score_N, q_N, won_N), "ranking": ranking}


def _with_own(row: Row[PrmColumns]) -> Row[ImplicitColumns]:
    known = {name: getattr(row.columns, name) for name in PrmColumns.names()}
    own_L = (np.arange(len(row)) < row.trunk) * row.columns.is_scored
    return Row(row.input_ids, ImplicitColumns(**known, old=np.zeros(len(row), np.float32), own=own_L), row.branches)
