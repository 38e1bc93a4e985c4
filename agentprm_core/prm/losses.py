"""What a process reward model is trained to do.

Shapes: ``N`` packed tokens, ``M`` scored actions among them. Scores are logits; Q_φ = σ(logit).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F

from agentprm_core.prm.model import action_logits
from agentprm_core.prm.rows import PrmColumns
from agentprm_core.training.packing import Batch, Row
from agentprm_core.training.trainer import Losses, Objective

PrmLoss = Callable[..., torch.Tensor]


def soft_bce(logit_M: torch.Tensor, batch: Batch[PrmColumns]) -> torch.Tensor:
    """−Σ [Q̂ log Q_φ + (1 − Q̂) log(1 − Q_φ)] over the scored actions (paper A, eq. 3)."""
    return F.binary_cross_entropy_with_logits(logit_M, batch.columns.q[batch.columns.is_scored > 0], reduction="sum")


def relative(logit_M: torch.Tensor, batch: Batch[PrmColumns], margin: float) -> torch.Tensor:
    """−Σ log σ(r_c − r_r) over ordered pairs of actions at one state with Q̂_c − Q̂_r > ``margin`` (paper A, relative
    loss; Bradley-Terry)."""
    columns, scored_N = batch.columns, batch.columns.is_scored > 0
    better_MM = _better(batch.row[scored_N], columns.state[scored_N], columns.q[scored_N], margin)
    return (F.softplus(logit_M[None, :] - logit_M[:, None]) * better_MM).sum()


def pair_weights(row: Row[PrmColumns], margin: float) -> Row[PrmColumns] | None:
    """The row with its loss weights spread over the actions that make pairs, their sum the number of pairs, so that the
    loss is a mean over pairs; None where no two actions at one state differ by more than ``margin``."""
    columns, scored_L = row.columns, row.columns.is_scored > 0
    state_M, q_M = torch.from_numpy(columns.state[scored_L]), torch.from_numpy(columns.q[scored_L])
    better_MM = _better(torch.zeros_like(state_M), state_M, q_M, margin).numpy()
    if not better_MM.any():
        return None
    weight_L = np.zeros_like(columns.loss_weight)
    weight_L[scored_L] = (better_MM.sum(0) + better_MM.sum(1)) / 2
    return replace(row, columns=replace(columns, loss_weight=weight_L))


def _better(row_M: torch.Tensor, state_M: torch.Tensor, q_M: torch.Tensor, margin: float) -> torch.Tensor:
    """(M, M) bool: action i was tried at the same state of the same row as j, and is better by the margin."""
    same_MM = (row_M[:, None] == row_M[None, :]) & (state_M[:, None] == state_M[None, :])
    return same_MM & (q_M[:, None] - q_M[None, :] > margin)


def prm_objective(loss: PrmLoss) -> Objective:
    """The objective of ``loss``, of the logits (M,) where ``is_scored`` and the batch, to a sum over the batch."""
    return partial(_objective, loss=loss)


def _objective(model: torch.nn.Module, batch: Batch, loss: PrmLoss) -> Losses:
    total = loss(action_logits(model, batch), batch)
    return Losses(total, {"prm_loss": (total.detach(), batch.columns.loss_weight.sum())})
