"""What a process reward model is trained to do.

Shapes: ``N`` packed tokens, ``M`` scored actions among them. Scores are logits; Q_φ = σ(logit).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F

from agentprm_core.errors import DataError
from agentprm_core.policy.likelihood import token_nll
from agentprm_core.prm.model import action_logits, embedding
from agentprm_core.training.packing import Row
from agentprm_core.training.trainer import Losses, Objective


def soft_bce(logit_M: torch.Tensor, batch: dict) -> torch.Tensor:
    """−Σ [Q̂ log Q_φ + (1 − Q̂) log(1 − Q_φ)] over the scored actions (paper A, eq. 3)."""
    return F.binary_cross_entropy_with_logits(logit_M, batch["q"][batch["weight"] > 0], reduction="sum")


def relative(logit_M: torch.Tensor, batch: dict, margin: float) -> torch.Tensor:
    """−Σ log σ(r_c − r_r) over ordered pairs of actions at one state with Q̂_c − Q̂_r > ``margin`` (paper A, relative
    loss; Bradley-Terry)."""
    scored_N = batch["weight"] > 0
    better_MM = _better(batch["row"][scored_N], batch["state"][scored_N], batch["q"][scored_N], margin)
    return (F.softplus(logit_M[None, :] - logit_M[:, None]) * better_MM).sum()


def pair_weights(row: Row, margin: float) -> Row | None:
    """The row with its weights spread over the actions that make pairs, their sum the number of pairs, so that the
    loss is a mean over pairs; None where no two actions at one state differ by more than ``margin``."""
    scored_L = row.columns["weight"] > 0
    state_M, q_M = (torch.from_numpy(row.columns[name][scored_L]) for name in ("state", "q"))
    better_MM = _better(torch.zeros_like(state_M), state_M, q_M, margin).numpy()
    if not better_MM.any():
        return None
    weight_L = row.columns["weight"].copy()
    weight_L[scored_L] = (better_MM.sum(0) + better_MM.sum(1)) / 2
    return replace(row, columns={**row.columns, "weight": weight_L})


def _better(row_M: torch.Tensor, state_M: torch.Tensor, q_M: torch.Tensor, margin: float) -> torch.Tensor:
    """(M, M) bool: action i was tried at the same state of the same row as j, and is better by the margin."""
    same_MM = (row_M[:, None] == row_M[None, :]) & (state_M[:, None] == state_M[None, :])
    return same_MM & (q_M[:, None] - q_M[None, :] > margin)


def check_observations(prm: torch.nn.Module, observation_weight: float) -> None:
    """Raises DataError where :func:`prm_objective` cannot predict the words: its embedding is not its output."""
    if observation_weight and not prm.config.tie_word_embeddings:
        raise DataError(
            "observation_weight needs a model whose embedding is also its output (tie_word_embeddings): set "
            "prm.observation_weight to 0"
        )


def prm_objective(loss: Callable[..., torch.Tensor], observation_weight: float, scored: str = "weight") -> Objective:
    """The objective of ``loss`` (logit_M, batch → sum), and beside it ``observation_weight`` × the surprise (nats) at
    the world's words, predicted through the transposed embedding as the policy does. Scores are read where the column
    ``scored`` is above 0."""
    return partial(_objective, loss=loss, observation_weight=observation_weight, scored=scored)


def _objective(
    model: torch.nn.Module,
    batch: dict,
    loss: Callable[..., torch.Tensor],
    observation_weight: float,
    scored: str,
) -> Losses:
    logit_M, out = action_logits(model, batch, batch[scored] > 0, output_hidden_states=observation_weight > 0)
    main = loss(logit_M, batch)
    metrics = {"prm_loss": (main.detach(), batch["weight"].sum())}
    if observation_weight == 0:
        return Losses(main, metrics)
    of_world_N = batch["observation"] > 0
    hidden_PW = out.hidden_states[-1][0, batch["parent"][of_world_N]]
    surprised = token_nll(hidden_PW, embedding(model), batch["input_ids"][of_world_N]).sum()
    metrics["observation_loss"] = (surprised.detach(), of_world_N.sum())
    return Losses(main + observation_weight * surprised, metrics)
