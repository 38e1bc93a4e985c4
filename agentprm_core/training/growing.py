"""A packed tree that grows: episodes are read once, then tokens are added to branches at any of their turns.

Keys and values of everything read are kept, so an added token costs itself. What it sees is what a branch of
:mod:`agentprm_core.training.attention` sees: its trunk's beginning and its own branch.

Shapes: ``B`` rows with new tokens, ``Q`` and ``L`` queries and keys of the row that has most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from agentprm_core.training.attention import Blocks, Memory, forward_blocks, read
from agentprm_core.training.packing import Row, pack

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class Growth:
    """New tokens of one branch."""

    row: int
    branch: int
    """Any number ≥ 0 of the caller's: tokens of one row with one number are one branch, in the order they come."""
    sees: int
    """How many of the trunk's tokens the branch continues."""
    start: int
    """Tokens the branch had before."""
    tokens: Sequence[int]


class GrowingTree:
    """Reads ``rows`` at once, then what :meth:`grow` adds. The model must be within ``packed_attention``."""

    def __init__(self, model: PreTrainedModel, rows: Sequence[Row], keep: Sequence[tuple[int, int]]) -> None:
        """``keep``: (row, token) after which a continuation is to be predicted; the logits [len(keep), V] are in
        ``first_logits``."""
        self._model, self._memory = model, Memory()
        batch = pack(rows)
        self._row, self._branch, self._position = (x.numpy() for x in (batch.row, batch.branch, batch.position_ids))
        starts = np.flatnonzero(self._position == 0)
        batch = batch.to(model.device)
        wanted = [int(starts[row]) + token for row, token in keep]
        blocks = forward_blocks(batch, self._memory)
        self.first_logits = self._read(batch.input_ids, batch.position_ids, blocks, wanted)

    def grow(self, growths: Sequence[Growth]) -> torch.Tensor:
        """Read the new tokens; float32 logits [len(growths), V] after the last of each."""
        counts = np.array([len(growth.tokens) for growth in growths])
        before = len(self._row)
        sees = np.repeat([growth.sees for growth in growths], counts)
        position = np.concatenate([growth.sees + growth.start + np.arange(len(growth.tokens)) for growth in growths])
        self._row = np.concatenate([self._row, np.repeat([growth.row for growth in growths], counts)])
        self._branch = np.concatenate([self._branch, np.repeat([growth.branch for growth in growths], counts)])
        self._position = np.concatenate([self._position, position])
        ids = torch.from_numpy(np.concatenate([growth.tokens for growth in growths]))
        return self._read(ids, torch.from_numpy(position), self._blocks(before, sees), np.cumsum(counts) - 1)

    def _read(self, ids_N: torch.Tensor, positions_N: torch.Tensor, blocks: Blocks, keep) -> torch.Tensor:
        device = self._model.device
        keep = torch.as_tensor(np.asarray(keep, dtype=np.int64), device=device)
        out = read(self._model, ids_N.to(device), positions_N.to(device), blocks, logits_to_keep=keep)
        return out.logits[0].float()

    def _blocks(self, before: int, sees: np.ndarray) -> Blocks:
        """One block of all rows with new tokens, those from ``before`` on: who of them sees what."""
        rows, new_row = np.unique(self._row[before:], return_inverse=True)
        number = np.full(self._row.max() + 1, -1)
        number[rows] = np.arange(len(rows))
        members = np.flatnonzero(number[self._row] >= 0)
        keys_BL, exists_BL = _padded(number[self._row[members]], len(rows))
        keys_BL = members[keys_BL]
        queries_BQ, _ = _padded(new_row, len(rows))
        q, k = before + queries_BQ[:, :, None], keys_BL[:, None, :]
        on_trunk = (self._branch[k] < 0) & (self._position[k] < sees[queries_BQ][:, :, None])
        own = (self._branch[k] == self._branch[q]) & (k <= q)
        mask = torch.from_numpy((on_trunk | own) & exists_BL[:, None, :])[:, None]
        # a short row's queries are filled up with its first, whose real place is written last
        back = np.empty(len(new_row), dtype=np.int64)
        back[queries_BQ[:, ::-1]] = np.arange(queries_BQ.size).reshape(queries_BQ.shape)[:, ::-1]
        device = self._model.device
        group = (torch.from_numpy(queries_BQ).to(device), torch.from_numpy(keys_BL).to(device), mask.to(device))
        return Blocks([group], torch.from_numpy(back).to(device), self._memory)


def _padded(group: np.ndarray, groups: int) -> tuple[np.ndarray, np.ndarray]:
    """(groups, most) indices of each group's members in order, filled up with its first, and which are real."""
    order = np.argsort(group, kind="stable")
    counts = np.bincount(group, minlength=groups)
    offset = np.arange(counts.max())
    real = offset < counts[:, None]
    return order[(np.cumsum(counts) - counts)[:, None] + np.where(real, offset, 0)], real
