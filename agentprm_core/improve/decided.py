"""The decided turns of episodes as rows, and what a model says of their tokens: what policy gradients share.

Shapes: ``L`` tokens of a row, ``T`` turns of an episode, ``W`` width of the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
import torch.nn.functional as F

from agentprm_core.improve.choices import AmongColumns, Choices
from agentprm_core.improve.sft import check_fits
from agentprm_core.policy.decoding import Constrained
from agentprm_core.policy.models import Checkpoint
from agentprm_core.policy.prompt import Rendered
from agentprm_core.training.attention import Logits, forward, logits_of, packed_attention
from agentprm_core.training.columns import Values
from agentprm_core.training.packing import Row, cut, pack
from agentprm_core.types import Episode

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class DecidedColumns(AmongColumns):
    """What is known of a decided turn."""

    is_end: Values
    """1 at the end of each decided action."""
    decided: Values
    """1 on tokens of decided actions that had an alternative, which are all where play is free."""
    old: Values
    """There, the log-probability that who played it gave the token, nats; 0 where that is not known yet."""
    is_state: Values
    """1 on the token after which a decided action begins."""


D = TypeVar("D", bound=DecidedColumns)


def decided_row(
    episode: Episode,
    policy: Checkpoint,
    kind: type[D],
    choices: Choices | None = None,
    decoding: Constrained | None = None,
) -> tuple[Row[D], Rendered]:
    """The episode's tokens with its decided turns, and no loss weight yet.

    ``choices`` keep the sets that the tokens were drawn from where play is as ``decoding`` says; None: freely. Raises
    DataError where the context is too small.
    """
    choices = choices or Choices()
    rendered = policy.renderer.episode(episode.turns)
    check_fits(len(rendered.input_ids), episode, policy.model)
    columns = kind.zeros(len(rendered.input_ids))
    for turn in range(episode.start, episode.length):
        start, end = rendered.action_starts[turn], rendered.action_ends[turn]
        columns.is_state[start - 1] = columns.is_end[end] = 1.0
        own = slice(start, end + 1)
        among_L = choices.of(episode.turns[turn], rendered.input_ids[own], decoding)
        columns.among[own], columns.decided[own] = among_L, choices.left_open(among_L)
    return Row(np.array(rendered.input_ids, dtype=np.int32), columns), rendered


@torch.no_grad()
def with_old(
    model: PreTrainedModel, rows: Sequence[Row[D]], batch_tokens: int, read: Logits = logits_of
) -> list[Row[D]]:
    """The rows with what ``model``, as it is now, says of their decided tokens, as ``read`` reads it."""
    found: list[Row[D]] = []
    for numbers in cut(range(len(rows)), [len(row) for row in rows], batch_tokens):
        batch = pack([rows[i] for i in numbers]).to(model.device)
        decided_N = batch.columns.decided > 0
        with packed_attention(model):
            logits_PV = read(model, batch, decided_N)
        log_prob_P = -F.cross_entropy(logits_PV, batch.input_ids[decided_N], reduction="none")
        old_N = torch.zeros(len(decided_N), device=decided_N.device).masked_scatter(decided_N, log_prob_P)
        split = old_N.cpu().split([len(rows[i]) for i in numbers])
        for i, old_L in zip(numbers, split):
            found.append(replace(rows[i], columns=replace(rows[i].columns, old=old_L.numpy())))
    return found


@torch.no_grad()
def state_features(model: PreTrainedModel, rows: Sequence[Row[D]], batch_tokens: int) -> list[np.ndarray]:
    """Of each row the last hidden states (decided turns, W) where its actions begin, float32."""
    found: list[np.ndarray] = []
    for numbers in cut(range(len(rows)), [len(row) for row in rows], batch_tokens):
        batch = pack([rows[i] for i in numbers]).to(model.device)
        state_N = batch.columns.is_state > 0
        with packed_attention(model):
            out = forward(
                model, batch, output_hidden_states=True, logits_to_keep=torch.tensor([0], device=model.device)
            )
        counts = torch.bincount(batch.row[state_N], minlength=len(numbers)).tolist()
        found += [part.cpu().numpy() for part in out.hidden_states[-1][0, state_N].float().split(counts)]
    return found


def by_turn(episode: Episode, decided: np.ndarray) -> np.ndarray:
    """(T,) of values of the decided turns; 0 at replayed ones."""
    return np.concatenate([np.zeros(episode.start), decided])
