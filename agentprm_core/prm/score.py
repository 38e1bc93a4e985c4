"""Scores of a process reward model: of every action of whole episodes, and of other actions at their states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch

from agentprm_core.policy.prompt import Renderer
from agentprm_core.prm.model import action_logits
from agentprm_core.prm.rows import Labelled, Tried, prm_row
from agentprm_core.training.attention import packed_attention
from agentprm_core.training.columns import ScoreColumns
from agentprm_core.training.packing import Batch, Row, cut, pack
from agentprm_core.types import Episode

if TYPE_CHECKING:
    from transformers import PreTrainedModel

R = TypeVar("R", bound=ScoreColumns)


def score_episodes(
    prm: PreTrainedModel, renderer: Renderer, episodes: Sequence[Episode], batch_tokens: int
) -> list[np.ndarray]:
    """Q_φ in (0, 1) of each episode's T actions, float32. ``batch_tokens``: tokens a forward pass."""
    rows = [prm_row(Labelled(episode, np.zeros(len(episode.turns))), renderer) for episode in episodes]
    return score_rows(prm, rows, batch_tokens)


def score_actions(
    prm: PreTrainedModel,
    renderer: Renderer,
    episodes: Sequence[Episode],
    actions: Sequence[Sequence[tuple[int, str] | tuple[int, str, str]]],
    batch_tokens: int,
) -> list[np.ndarray]:
    """Q_φ in (0, 1) of each ``(turn, action)`` or ``(turn, action, reason)`` tried at an episode's states, in their
    order: one tree an episode."""
    rows = []
    for episode, tried in zip(episodes, actions, strict=True):
        unlabelled = np.full(len(episode.turns), np.nan)
        branches = [Tried(turn, text, 0.0, "".join(reason)) for turn, text, *reason in tried]
        rows.append(prm_row(Labelled(episode, unlabelled, branches), renderer))
    return score_rows(prm, rows, batch_tokens)


def score_rows(prm: PreTrainedModel, rows: Sequence[Row[ScoreColumns]], batch_tokens: int) -> list[np.ndarray]:
    """Q_φ where each row ``is_scored``, in order. A row may be empty."""
    return read_rows(prm, rows, batch_tokens, lambda logit_M, _: logit_M.sigmoid())


@torch.no_grad()  # not inference_mode: a sharded model that scores while it is trained keeps what it gathers
def read_rows(
    prm: PreTrainedModel,
    rows: Sequence[Row[R]],
    batch_tokens: int,
    told: Callable[[torch.Tensor, Batch[R]], torch.Tensor],
    *,
    head: bool = True,
) -> list[np.ndarray]:
    """What ``told`` makes of the logits (M,) of a batch, where each row ``is_scored``, in order. A row may be empty.
    ``head`` as in :func:`agentprm_core.prm.model.action_logits`."""
    training = prm.training
    prm.eval()
    found = [np.empty(0, np.float32) for _ in rows]
    filled = [number for number, row in enumerate(rows) if len(row)]  # an episode without an action has no token
    with packed_attention(prm):
        for numbers in cut(filled, [len(row) for row in rows], batch_tokens):
            batch = pack([rows[i] for i in numbers]).to(prm.device)
            said_M = told(action_logits(prm, batch, head=head), batch)
            counts = torch.bincount(batch.row[batch.columns.is_scored > 0], minlength=len(numbers))
            for i, said in zip(numbers, said_M.split(counts.tolist())):
                found[i] = said.cpu().numpy()
    prm.train(training)
    return found
