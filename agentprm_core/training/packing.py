"""Token sequences to batches: rows, a deterministic plan of which rows go together, and their padding.

A row is a whole episode (optionally with branches, :mod:`agentprm_core.training.tree`). Rows of like length share a
batch and are padded on the right, where a causal model never looks, so a batch of plain episodes needs no attention
mask at all and nothing leaks from one episode to another.

Shapes: ``B`` rows, ``L`` tokens of the longest row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

_POOL = 64
"""Batches' worth of rows that are sorted by length together: enough for little padding, few enough to stay shuffled."""


@dataclass(frozen=True)
class Row:
    """One training sequence and what is known of each of its tokens."""

    input_ids: np.ndarray
    """L int32 token ids."""
    columns: Mapping[str, np.ndarray] = field(default_factory=dict)
    """L float32 values each, by name: loss weights, targets."""
    branches: Sequence[tuple[int, int]] = ()
    """``(at, length)`` of each branch after the trunk, in order: it continues the trunk's first ``at`` tokens."""

    def __len__(self) -> int:
        return len(self.input_ids)


class BatchPlan(Sequence[list[int]]):
    """Which rows make up each batch of a whole run, decided before it starts by the seed alone.

    Args:
        lengths: tokens of each row.
        batch_tokens: the most padded tokens a batch may have. A longer row is a batch of its own.
        seed: of the shuffling.
        epochs: passes over the rows, or
        batches: the number of batches; exactly one of the two.
        group: batches an optimizer step consumes (processes × accumulation). A last, short group is filled with the
            next epoch's batches, so every step has the same number.

    Raises:
        ValueError: no rows.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        batch_tokens: int,
        seed: int,
        *,
        epochs: float | None = None,
        batches: int | None = None,
        group: int = 1,
    ) -> None:
        if not len(lengths):
            raise ValueError("no rows to train on")
        self._batches: list[list[int]] = []
        epoch = 0
        while batches is None or len(self._batches) < batches:
            fresh = _epoch(np.asarray(lengths), batch_tokens, seed, epoch)
            if batches is None:
                batches = math.ceil(epochs * len(fresh) / group) * group
            self._batches += fresh
            epoch += 1
        del self._batches[batches:]

    def __len__(self) -> int:
        return len(self._batches)

    def __getitem__(self, index: int) -> list[int]:
        return self._batches[index]


def _epoch(lengths: np.ndarray, batch_tokens: int, seed: int, epoch: int) -> list[list[int]]:
    """One pass: shuffle, sort by length within pools, cut at the budget, shuffle the batches."""
    rng = np.random.default_rng([seed, epoch])
    order = rng.permutation(len(lengths))
    pool = max(1, _POOL * batch_tokens // int(lengths.mean() + 1))
    batches: list[list[int]] = []
    for start in range(0, len(order), pool):
        rows = order[start : start + pool]
        batches += cut(rows[np.argsort(lengths[rows], kind="stable")], lengths, batch_tokens)
    return [batches[i] for i in rng.permutation(len(batches))]


def cut(rows: Sequence[int], lengths: Sequence[int], batch_tokens: int) -> list[list[int]]:
    """Consecutive ``rows``, cut so that no batch's padded size exceeds ``batch_tokens`` (unless one row does)."""
    batches: list[list[int]] = []
    longest = 0
    for row in rows:
        longest = max(longest, lengths[row])
        if not batches or longest * (len(batches[-1]) + 1) > batch_tokens:
            batches.append([])
            longest = lengths[row]
        batches[-1].append(int(row))
    return batches


def collate(rows: Sequence[Row], pad: int) -> dict[str, torch.Tensor]:
    """``input_ids`` (B, L) int64 padded with ``pad``, and every column (B, L) float32 padded with 0.

    With branches also ``position_ids``, ``segment`` and ``sees`` (B, L), from which
    :func:`agentprm_core.training.tree.tree_mask` makes the attention mask.
    """
    length = max(len(row) for row in rows)
    input_ids = np.full((len(rows), length), pad, dtype=np.int64)
    for b, row in enumerate(rows):
        input_ids[b, : len(row)] = row.input_ids
    batch = {"input_ids": torch.from_numpy(input_ids)}
    for name in rows[0].columns:
        column = np.zeros((len(rows), length), dtype=np.float32)
        for b, row in enumerate(rows):
            column[b, : len(row)] = row.columns[name]
        batch[name] = torch.from_numpy(column)
    if any(row.branches for row in rows):
        from agentprm_core.training.tree import layout

        batch |= layout([(len(row), row.branches) for row in rows], length)
    return batch
