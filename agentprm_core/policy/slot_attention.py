"""Attention of packed tokens over a cache of slots: which keys each query sees, in buckets of like slots.

Slots differ in how many new tokens they bring and in how much they hold. Padding all to the largest would double the
work, a call for each would drown in overhead. So the slots come sorted by both, neighbours share a bucket up to
:data:`BUCKET` of them while at most :data:`PADDING` of its queries would be padding, and a bucket's keys are read up to
its longest slot.

Shapes: ``N`` packed tokens, ``B`` slots of a bucket, ``Q`` queries of the one that has most, ``L`` its longest slot,
``H`` query heads, ``K`` key-value heads, ``D`` head size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from agentprm_core.policy.cache import KeyValueCache

BUCKET = 32
"""Slots a bucket at most: more would read further past the end of the short ones, and out of a core's own cache."""
PADDING = 0.25
"""The share of a bucket's queries that may be padding."""
FOLDED = 8
"""Queries of a slot up to which those that share a key-value head are one block of the CPU's kernel; more are blocks
enough by themselves."""


@dataclass(frozen=True, slots=True)
class Bucket:
    begin: int
    """The number of its first slot among those of the call."""
    tokens: slice
    """Of its queries, among the packed tokens."""
    padded: torch.Tensor | None
    """[B · Q] number of each query among ``tokens``, those of a slot at its end; a slot with fewer has its first one
    again before them. None where all have equally many."""
    real: torch.Tensor | None
    """[queries of ``tokens``] where each is in ``padded``."""
    slots_B: torch.Tensor
    queries: int
    length: int
    folded: bool
    """Whether the query heads that share a key-value head are queries of it."""
    mask: torch.Tensor
    """[B, 1, Q · H/K, L] where they are ([B, 1, 1, L] for one query), else [B, 1, Q, L]: 0 where a query sees a key
    and −inf where not."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Where the packed tokens of one call go and what they see."""

    cache: KeyValueCache
    places_N: torch.Tensor
    """slot × C + row of each token."""
    buckets: tuple[Bucket, ...]

    def write(self, layer: int, keys_NKD: torch.Tensor, values_NKD: torch.Tensor) -> None:
        self.cache.write(layer, self.places_N, keys_NKD, values_NKD)


def attend(plan: Plan, layer: int, query_NHD: torch.Tensor, scaling: float) -> torch.Tensor:
    """What each query reads from its slot, [N, H, D]. The keys of this call are written before."""
    heads, width = query_NHD.shape[1:]
    out_NHD = torch.empty_like(query_NHD)
    for bucket in plan.buckets:
        keys, values = plan.cache.read(layer, bucket.slots_B, bucket.length)
        size, kv_heads = keys.shape[:2]
        query = query_NHD[bucket.tokens]
        if bucket.padded is not None:
            query = query.index_select(0, bucket.padded)
        # keys and values are never repeated for the query heads that share them
        if bucket.folded:
            query = query.view(size, bucket.queries, kv_heads, -1, width).transpose(1, 2)
            query = query.reshape(size, kv_heads, -1, width)
            seen = _seen(query, keys, values, bucket.mask, scaling)
            seen = seen.view(size, kv_heads, bucket.queries, -1, width).transpose(1, 2)
        else:
            query = query.view(size, bucket.queries, heads, width).transpose(1, 2)
            seen = _seen(query, keys, values, bucket.mask, scaling).transpose(1, 2)
        seen = seen.reshape(-1, heads, width)
        out_NHD[bucket.tokens] = seen if bucket.real is None else seen.index_select(0, bucket.real)
    return out_NHD


def _seen(
    query_BHQD: torch.Tensor,
    keys_BKLD: torch.Tensor,
    values_BKLD: torch.Tensor,
    mask_B1QL: torch.Tensor,
    scaling: float,
) -> torch.Tensor:
    """What each query reads, [B, H, Q, D]; query heads that share a key-value head stand beside each other."""
    if query_BHQD.device.type != "cpu" or query_BHQD.dtype != torch.bfloat16:
        shared = query_BHQD.shape[1] != keys_BKLD.shape[1]
        return F.scaled_dot_product_attention(
            query_BHQD, keys_BKLD, values_BKLD, attn_mask=mask_B1QL, scale=scaling, enable_gqa=shared
        )
    # the CPU's kernel takes 1.4 to 3 times as long as these products in bfloat16, and less in float32
    size, kv_heads, length, width = keys_BKLD.shape
    keys, values = (x.reshape(size * kv_heads, length, width) for x in (keys_BKLD, values_BKLD))
    weights = torch.bmm(query_BHQD.reshape(size * kv_heads, -1, width) * scaling, keys.transpose(1, 2))
    weights.view(size, kv_heads, -1, mask_B1QL.shape[2], length).add_(mask_B1QL[:, :, None])
    return torch.bmm(weights.softmax(-1), values).view(query_BHQD.shape)


@dataclass(frozen=True, slots=True)
class Queries:
    """The queries of one call as arrays, slot by slot, slots sorted by their number of queries and then by length.

    Per query: its slot, its row there, and what it sees (rows before ``history``, and rows from ``start`` to its own).
    Per slot: its first query and their count.
    """

    slots: np.ndarray
    rows: np.ndarray
    history: np.ndarray
    start: np.ndarray
    first: np.ndarray
    count: np.ndarray
    branched: bool
    """Whether any starts anew beside others."""

    def some(self, chosen: np.ndarray, first: np.ndarray, count: np.ndarray) -> Queries:
        """Those of ``chosen``, ``count`` of each slot from ``first`` of them."""
        slots, rows, history, start = (column[chosen] for column in (self.slots, self.rows, self.history, self.start))
        return Queries(slots, rows, history, start, first, count, self.branched)

    def buckets(self, groups: int, past: torch.Tensor, wider: Sequence[Bucket] = ()) -> tuple[Bucket, ...]:
        """``groups``: query heads a key-value head; ``past``: :func:`past_masks` of as many rows as a slot has;
        ``wider``: buckets of the same slots, of which these are the last queries, so their masks may be cut out."""
        spans = [(bucket.begin, bucket.begin + len(bucket.slots_B)) for bucket in wider] or _spans(self.count.tolist())
        around = wider or (None,) * len(spans)
        return tuple(self._bucket(a, b, groups, past, wide) for (a, b), wide in zip(spans, around))

    def _bucket(self, begin: int, end: int, groups: int, past: torch.Tensor, wide: Bucket | None) -> Bucket:
        count, first = self.count[begin:end], self.first[begin:end]
        tokens = slice(int(first[0]), int(first[-1] + count[-1]))
        queries, chosen, padded, real = int(count.max()), tokens, None, None
        if len(count) * queries > tokens.stop - tokens.start:
            before_B1 = (queries - count)[:, None]
            within_BQ = np.arange(queries) - before_B1
            numbers = (np.maximum(within_BQ, 0) + (first - first[0])[:, None]).ravel()
            chosen = numbers + tokens.start
            padded, real = (torch.from_numpy(x).to(past.device) for x in (numbers, np.flatnonzero(within_BQ >= 0)))
        rows = self.rows[chosen]
        length = int(rows.max()) + 1
        if past.device.type != "cpu":  # a GPU's kernels copy masks of other widths
            length = min(-(-length // _ALIGNED) * _ALIGNED, past.shape[1])
        if wide is not None:
            folded = wide.folded or queries == 1
            masks = queries * groups if wide.folded and queries > 1 else queries
            mask = wide.mask[:, :, -masks:, :length]
            return Bucket(begin, tokens, padded, real, wide.slots_B, queries, length, folded, mask)
        folded = queries <= FOLDED or past.device.type != "cpu"  # other devices' kernels with masks repeat the keys
        if folded and queries > 1:
            rows = rows.repeat(groups)
        mask = past[:, :length].index_select(0, torch.from_numpy(rows).to(past.device))
        if self.branched:  # what lies between the history and a branch's start belongs to other branches
            start, history = self.start[chosen], self.history[chosen]
            new = np.concatenate(([True], (start[1:] != start[:-1]) | (history[1:] != history[:-1])))
            start_P, history_P = start[new, None], history[new, None]  # the same for all tokens of a piece
            low, high = int(history_P.min()), int(start_P.max())
            keys = np.arange(low, high)
            hidden_P = ((keys >= history_P) & (keys < start_P)) * np.float32(torch.finfo(past.dtype).min)
            piece = torch.from_numpy(new.cumsum() - 1).to(past.device)
            by_query = mask.view(len(start), -1, length)[:, :, low:high]
            # 0 there so far, and adding is faster than filling
            by_query += torch.from_numpy(hidden_P).to(past).index_select(0, piece)[:, None]
        slots = torch.from_numpy(self.slots[first]).to(past.device)
        mask = mask.view(end - begin, 1, -1, length)
        return Bucket(begin, tokens, padded, real, slots, queries, length, folded, mask)


_ALIGNED = 8
"""Keys of a mask, of two bytes each, that make 16 bytes."""


def _spans(counts: list[int]) -> list[tuple[int, int]]:
    """Slots with so many queries in neighbours that share a bucket."""
    spans, begin, most, held = [], 0, 0, 0
    for number, count in enumerate(counts):
        wider = max(most, count)
        size = number - begin + 1
        if size > 1 and (size > BUCKET or held + count < (1 - PADDING) * wider * size):
            spans.append((begin, number))
            begin, wider, held = number, count, 0
        most, held = wider, held + count
    return [*spans, (begin, len(counts))]


def past_masks(rows: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """[rows, rows]: 0 up to the diagonal, −inf after it; row r is the mask of a query at r that sees all its past."""
    return torch.full((rows, rows), torch.finfo(dtype).min, dtype=dtype, device=device).triu_(1)
