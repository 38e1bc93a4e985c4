"""Token sequences to batches: rows, a plan of which rows go together, and their packing end to end without padding.

A batch holds whole episodes in random order. Putting episodes of like length together would save the same padding, but
length tells the outcome (a lost episode runs to the turn limit), so such batches are all won or all lost and a process
reward model swings from one to the other instead of learning.

Shapes: ``N`` packed tokens of a batch, ``B`` rows and ``L`` tokens of the longest row of an attention group.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Generic, TypeVar, overload

import numpy as np
import torch

from agentprm_core.errors import DataError
from agentprm_core.training.columns import NOTHING, C, C_co, joined

_SPREAD = 1.25
"""Rows attend together while the longest has at most this many times the shortest's tokens."""


T = TypeVar("T")


@dataclass(frozen=True)
class Row(Generic[C_co]):
    """One sequence and what is known of each of its tokens."""

    input_ids: np.ndarray
    """int32 token ids."""
    columns: C_co = NOTHING  # type: ignore[assignment]
    """Loss weights, targets: what the kind of row has."""
    branches: Sequence[tuple[int, int]] = ()
    """``(at, length)`` of each branch after the trunk, in order: it continues the trunk's first ``at`` tokens."""

    def __len__(self) -> int:
        return len(self.input_ids)

    @property
    def trunk(self) -> int:
        """Tokens of the trunk."""
        return len(self) - sum(length for _, length in self.branches)


class BatchPlan(Sequence[list[int]]):
    """Which rows make up each batch of a whole run, decided before it starts by the seed alone.

    Args:
        lengths: tokens of each row.
        batch_tokens: the most tokens a batch may have. A longer row is a batch of its own.
        seed: of the shuffling.
        epochs: passes over the rows, or
        batches: the number of batches; exactly one of the two.
        group: batches an optimizer step consumes (processes × accumulation). A last, short group is filled with the
            next epoch's batches, so every step has the same number.

    Raises:
        DataError: no rows.
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
            raise DataError("no rows to train on")
        self._lengths, self._batch_tokens, self._seed = lengths, batch_tokens, seed
        self._batches: list[list[int]] = self._epoch(0)
        self.first_epoch = len(self._batches)
        """Batches of the first pass; later ones differ by a few."""
        epoch = 1
        if batches is None:
            assert epochs is not None, "give epochs or batches"
            while epoch < epochs:
                self._batches += self._epoch(epoch)
                epoch += 1
            surplus = int((epoch - epochs) * self.first_epoch)  # of the last pass, where ``epochs`` has a fraction
            batches = math.ceil((len(self._batches) - surplus) / group) * group
        while len(self._batches) < batches:
            self._batches += self._epoch(epoch)
            epoch += 1
        del self._batches[batches:]

    def _epoch(self, epoch: int) -> list[list[int]]:
        order = np.random.default_rng([self._seed, epoch]).permutation(len(self._lengths))
        return cut(order, self._lengths, self._batch_tokens)

    def __len__(self) -> int:
        return len(self._batches)

    @overload
    def __getitem__(self, index: int) -> list[int]: ...

    @overload
    def __getitem__(self, index: slice) -> list[list[int]]: ...

    def __getitem__(self, index: int | slice) -> list[int] | list[list[int]]:
        return self._batches[index]


def cut(rows: Sequence[int] | np.ndarray, lengths: Sequence[int], batch_tokens: int) -> list[list[int]]:
    """Consecutive ``rows``, cut so that no batch has more than ``batch_tokens`` (unless one row does)."""
    batches: list[list[int]] = []
    total = 0
    for row in rows:
        if not batches or total + lengths[row] > batch_tokens:
            batches.append([])
            total = 0
        batches[-1].append(int(row))
        total += int(lengths[row])
    return batches


@dataclass(frozen=True)
class Fork:
    """What a block with branches needs to attend in two parts: its trunks, and its branches over whole rows.

    ``T`` tokens of the longest trunk, ``Q`` tokens of the row that has most on branches.
    """

    trunks: torch.Tensor
    """(B, T) the packed token there, as :attr:`Block.index`."""
    at: torch.Tensor
    """(B, Q) which token of its row each branch token is; on padding 0, a token that always sees itself."""
    segment: torch.Tensor
    """(B, L) 0 on the trunk, j on the j-th branch from 1, −1 on padding."""
    sees: torch.Tensor
    """(B, L) how many of the trunk's tokens the token sees."""


@dataclass(frozen=True)
class Block:
    """Rows of like length that attend together, padded to the longest."""

    index: torch.Tensor
    """(B, L) the packed token there; on padding the row's first, which nobody reads."""
    fork: Fork | None
    """None where no row has branches."""


@dataclass(frozen=True)
class Batch(Generic[C_co]):
    """Rows end to end as tensors (N,), and who sees whom."""

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    row: torch.Tensor
    """Number of the token's row in this batch."""
    parent: torch.Tensor
    """Index of the token it is predicted from; a row's first token has itself."""
    branch: torch.Tensor
    """Number of its branch in this batch, −1 on trunks."""
    columns: C_co
    numbers: torch.Tensor
    """(rows,) which rows of the data set these are."""
    blocks: Sequence[Block]
    back: torch.Tensor
    """Where each packed token stands in all blocks end to end; in one with branches its trunks come first."""

    def to(self: T, device: torch.device) -> T:
        """The same on ``device``."""
        return _moved(self, device)


def _moved(thing: Any, device: torch.device) -> Any:
    if isinstance(thing, torch.Tensor):
        return thing.to(device)
    if is_dataclass(thing) and not isinstance(thing, type):
        return replace(thing, **{f.name: _moved(getattr(thing, f.name), device) for f in fields(thing)})
    return [_moved(each, device) for each in thing] if isinstance(thing, list) else thing


def pack(rows: Sequence[Row[C]], numbers: Sequence[int] | None = None) -> Batch[C]:
    """The rows end to end. ``numbers``: which they are of the data set; without, from 0."""
    lengths = np.array([len(row) for row in rows])
    starts = np.cumsum(lengths) - lengths
    places = [_places(row) for row in rows]
    branches = np.cumsum([0, *(len(row.branches) for row in rows)])
    branch = [
        np.where(place["segment"] > 0, place["segment"] - 1 + first, -1) for place, first in zip(places, branches)
    ]
    blocks, back = _blocks(rows, places, lengths, starts)
    columns = joined([row.columns for row in rows])
    return Batch(
        input_ids=torch.from_numpy(np.concatenate([row.input_ids for row in rows]).astype(np.int64)),
        position_ids=torch.from_numpy(np.concatenate([place["position"] for place in places])),
        row=torch.from_numpy(np.repeat(np.arange(len(rows)), lengths)),
        parent=torch.from_numpy(np.concatenate([place["parent"] + start for place, start in zip(places, starts)])),
        branch=torch.from_numpy(np.concatenate(branch)),
        columns=type(columns)(**{name: torch.from_numpy(getattr(columns, name)) for name in columns.names()}),
        numbers=torch.tensor(range(len(rows)) if numbers is None else numbers),
        blocks=blocks,
        back=torch.from_numpy(back),
    )


def _places(row: Row) -> dict[str, np.ndarray]:
    """Per token of one row: position, parent, ``segment`` (0 trunk, j the j-th branch from 1) and ``sees`` (how many of
    the trunk's tokens)."""
    index = np.arange(len(row))
    segment, sees, position, parent = np.zeros_like(index), index + 1, index.copy(), np.maximum(index - 1, 0)
    start = row.trunk
    for j, (at, length) in enumerate(row.branches, 1):
        own = slice(start, start + length)
        segment[own], sees[own], position[own] = j, at, np.arange(at, at + length)
        parent[start] = at - 1
        start += length
    return {"position": position, "segment": segment, "sees": sees, "parent": parent}


def _blocks(rows, places, lengths, starts) -> tuple[list[Block], np.ndarray]:
    """Rows of like length as padded blocks, and for every packed token its index in all blocks end to end."""
    blocks, back, before = [], np.empty(lengths.sum(), dtype=np.int64), 0
    for members in _alike(lengths):
        index = _padded([np.arange(starts[row], starts[row] + lengths[row]) for row in members])
        trunks = [index[b, : rows[row].trunk] for b, row in enumerate(members)]
        branches = [np.arange(rows[row].trunk, lengths[row]) for row in members]
        fork, parts = None, list(trunks)
        if any(map(len, branches)):
            segment = _padded([places[row]["segment"] for row in members], -1)
            sees = _padded([places[row]["sees"] for row in members], 0)
            fork = Fork(*map(torch.from_numpy, (_padded(trunks), _padded(branches, 0), segment, sees)))
            parts += [index[b, at] for b, at in enumerate(branches)]
        widths = np.repeat([len(max(of, key=len)) for of in (trunks, branches)], len(members))
        for part, begin in zip(parts, before + np.cumsum(widths) - widths):
            back[part] = begin + np.arange(len(part))
        before += widths.sum()
        blocks.append(Block(torch.from_numpy(index), fork))
    return blocks, back


def _padded(parts: Sequence[np.ndarray], fill: int | None = None) -> np.ndarray:
    """(parts, longest), filled up with ``fill`` or each part's first."""
    found = np.empty((len(parts), max(map(len, parts))), np.int64)
    for row, part in zip(found, parts):
        row[: len(part)] = part
        row[len(part) :] = part[0] if fill is None else fill
    return found


def _alike(lengths: np.ndarray) -> list[list[int]]:
    """Row numbers by length, shortest first, in groups of like length."""
    groups: list[list[int]] = []
    for row in np.argsort(lengths, kind="stable"):
        if not groups or lengths[row] > _SPREAD * lengths[groups[-1][0]]:
            groups.append([])
        groups[-1].append(int(row))
    return groups
