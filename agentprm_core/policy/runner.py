"""Runs a Hugging Face model over a cache of slots: ragged new tokens in, hidden states where they are wanted out.

One call reads the new tokens of many slots, packed end to end without padding. Everything but attention works on the
packed row; attention goes through transformers' own hook (``ALL_ATTENTION_FUNCTIONS``): it writes the new keys and
values into the cache, and reads each slot's rows in buckets of like size. So any causal model of the library that uses
the hook runs here, with or without LoRA, and the same code serves the policy and the PRM.

A slot's new tokens may fan out into *branches* that see the slot's history and themselves, but not each other: that is
how a PRM scores many candidate actions of one state in one call.

Shapes: ``N`` packed tokens, ``R`` places read, ``B`` slots of a bucket, ``Q`` its most new tokens, ``L`` its longest
slot, ``H`` query heads, ``K`` key-value heads, ``D`` head size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from transformers import PreTrainedModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from agentprm_core.policy.cache import KeyValueCache, slot_bytes

ATTENTION = "agentprm_slots"
BUCKET_STEPS = (1, 2, 4, 8, 16, 32, 64, 128)
"""Slots with about as many new tokens share a bucket, so that little of its query block is padding."""


@dataclass(frozen=True, slots=True)
class Extension:
    """New tokens of one slot: ``tokens`` are kept, ``branches`` are read after them and forgotten."""

    slot: int
    tokens: Sequence[int]
    branches: Sequence[Sequence[int]] = ()


@dataclass(frozen=True, slots=True)
class _Bucket:
    slots_B: torch.Tensor
    queries_BQ: torch.Tensor
    """Indices into the packed tokens; a short slot's row is filled up with its first token."""
    length: int
    mask: torch.Tensor
    """[B, 1, H/K · Q, L], 0 where a query sees a key and −inf where not."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """Where the packed tokens of one call go and what they see."""

    cache: KeyValueCache
    places_N: torch.Tensor
    buckets: tuple[_Bucket, ...]


class CachedModel:
    """A causal model or a token scorer with a key-value cache of ``slots`` conversations of ``context`` tokens."""

    def __init__(self, model: PreTrainedModel, *, slots: int, context: int) -> None:
        """Raises ValueError where the model cannot hold ``context`` tokens."""
        base = model.get_base_model() if hasattr(model, "peft_config") else model
        self.config = base.config
        _check_context(self.config, context)
        self._trunk = getattr(base, base.base_model_prefix)
        self._head: nn.Module = base.score if hasattr(base, "score") else base.get_output_embeddings()
        self.device = base.device
        self.cache = KeyValueCache(slots=slots, device=base.device, **_sizes(self.config, context, base.dtype))
        self._minus_infinity = torch.finfo(base.dtype).min
        self._groups = self.config.num_attention_heads // self.config.num_key_value_heads
        self.tokens_read = 0

    @torch.inference_mode()
    def extend(self, extensions: Sequence[Extension]) -> torch.Tensor:
        """Read the new tokens; returns the last hidden states [R, width] of each extension in order.

        An extension without branches is read at its last token, one with branches at the last token of each branch.
        Raises ValueError for one without a token, and where a slot would outgrow the context.
        """
        segments = _Segments.of(extensions, self.cache)
        plan = self._plan(segments)
        self.tokens_read += segments.total
        configured = self.config._attn_implementation
        self.config._attn_implementation = ATTENTION
        try:
            hidden = self._trunk(
                input_ids=self._tensor(segments.tokens)[None],
                position_ids=self._tensor(segments.positions)[None],
                attention_mask=_NO_MASK,
                use_cache=False,
                slots_plan=plan,
            ).last_hidden_state[0]
        finally:
            self.config._attn_implementation = configured
        for extension in extensions:
            self.cache.lengths[extension.slot] += len(extension.tokens)
        return hidden[self._tensor(segments.read)]

    @torch.inference_mode()
    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits [R, vocabulary] of a policy, scores [R, 1] of a PRM, in float32."""
        return self._head(hidden).float()

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).to(self.device, non_blocking=True)

    def _plan(self, segments: _Segments) -> _Plan:
        places = segments.slots * self.cache.context + segments.rows
        buckets = tuple(self._bucket(segments, group) for group in segments.groups())
        return _Plan(self.cache, self._tensor(places), buckets)

    def _bucket(self, segments: _Segments, group: np.ndarray) -> _Bucket:
        first, count = segments.first[group], segments.count[group]
        offsets = np.arange(count.max())
        queries_BQ = first[:, None] + np.where(offsets < count[:, None], offsets, 0)
        length = int(segments.rows[queries_BQ].max()) + 1
        keys_L = np.arange(length)
        queries = queries_BQ[:, :, None]
        seen_BQL = (keys_L < segments.history[queries]) | (
            (keys_L >= segments.start[queries]) & (keys_L <= segments.rows[queries])
        )
        hidden_BQL = self._tensor(~seen_BQL)
        mask = torch.zeros(hidden_BQL.shape, dtype=self.cache.rows.dtype, device=self.device)
        mask.masked_fill_(hidden_BQL, self._minus_infinity)
        mask = mask[:, None].expand(-1, self._groups, -1, -1).reshape(len(group), 1, -1, length)
        return _Bucket(self._tensor(segments.slots[first]), self._tensor(queries_BQ), length, mask)


def slots_within(model: PreTrainedModel, *, context: int, memory_mb: float) -> int:
    """How many slots of ``context`` tokens the cache may have. Raises ValueError when it is less than one."""
    base = model.get_base_model() if hasattr(model, "peft_config") else model
    slots = int(memory_mb * 2**20 // slot_bytes(**_sizes(base.config, context, base.dtype)))
    if slots < 1:
        raise ValueError(f"a cache of {memory_mb} MiB holds no slot of {context} tokens")
    return slots


@dataclass(frozen=True, slots=True)
class _Segments:
    """The packed tokens of one call, as arrays. Per token: id, slot, row in the slot, position, what it sees
    (rows before ``history``, and rows from ``start`` to its own). Per extension: its first token and their count."""

    tokens: np.ndarray
    slots: np.ndarray
    rows: np.ndarray
    positions: np.ndarray
    history: np.ndarray
    start: np.ndarray
    first: np.ndarray
    count: np.ndarray
    read: np.ndarray

    @property
    def total(self) -> int:
        return len(self.tokens)

    @classmethod
    def of(cls, extensions: Sequence[Extension], cache: KeyValueCache) -> _Segments:
        tokens: list[int] = []
        segments: list[tuple[int, int, int, int]] = []  # slot, first row, position of it, tokens
        first, read = [], []
        for extension in extensions:
            first.append(len(tokens))
            row = cache.lengths[extension.slot]
            if extension.tokens:
                tokens += extension.tokens
                segments.append((extension.slot, row, row, len(extension.tokens)))
                row += len(extension.tokens)
            if not extension.branches:
                read.append(len(tokens) - 1)
            position = row
            for branch in extension.branches:
                tokens += branch
                segments.append((extension.slot, row, position, len(branch)))
                row += len(branch)
                read.append(len(tokens) - 1)
            if row > cache.context:
                raise ValueError(f"slot {extension.slot} would hold {row} tokens, its context is {cache.context}")
        slot, row, position, count = np.array(segments, dtype=np.int64).T
        if not count.all():
            raise ValueError("an extension or a branch without a token")
        begin = np.cumsum(count) - count
        within = np.arange(len(tokens)) - np.repeat(begin, count)
        first = np.array(first)
        return cls(
            tokens=np.array(tokens),
            slots=np.repeat(slot, count),
            rows=np.repeat(row, count) + within,
            positions=np.repeat(position, count) + within,
            history=np.repeat(position, count),
            start=np.repeat(row, count),
            first=first,
            count=np.diff(first, append=len(tokens)),
            read=np.array(read),
        )

    def groups(self) -> list[np.ndarray]:
        """Extensions of like size, shortest slots first."""
        size = np.searchsorted(BUCKET_STEPS, self.count)
        order = np.lexsort((self.rows[self.first], size))
        return np.split(order, np.flatnonzero(np.diff(size[order])) + 1)


def _attend(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor,
    scaling: float,
    slots_plan: _Plan,
    **_: object,
) -> tuple[torch.Tensor, None]:
    """The attention of one layer for packed tokens; ``query`` is [1, H, N, D], the result [1, N, H, D]."""
    heads, total, width = query.shape[1:]
    kv_heads = key.shape[1]
    cache, layer = slots_plan.cache, module.layer_idx
    cache.write(layer, slots_plan.places_N, key[0].transpose(0, 1), value[0].transpose(0, 1))
    query_NHD = query[0].transpose(0, 1)
    out_NHD = torch.empty(total, heads, width, dtype=query.dtype, device=query.device)
    for bucket in slots_plan.buckets:
        size, most = bucket.queries_BQ.shape
        keys, values = cache.read(layer, bucket.slots_B, bucket.length)
        # the query heads that share a key-value head are folded into the queries: keys and values are never repeated
        packed = query_NHD[bucket.queries_BQ.view(-1)].view(size, most, kv_heads, -1, width)
        folded = packed.permute(0, 2, 3, 1, 4).reshape(size, kv_heads, -1, width)
        seen = F.scaled_dot_product_attention(folded, keys, values, attn_mask=bucket.mask, scale=scaling)
        seen = seen.view(size, kv_heads, -1, most, width).permute(0, 3, 1, 2, 4).reshape(size * most, heads, width)
        out_NHD.index_copy_(0, bucket.queries_BQ.view(-1), seen)  # a padded query repeats its slot's first one
    return out_NHD[None], None


ALL_ATTENTION_FUNCTIONS.register(ATTENTION, _attend)

_NO_MASK = torch.empty(1, 1, 1, 1)
"""A mask of four dimensions is handed on untouched: the plan holds the real ones."""


def _sizes(config: object, context: int, dtype: torch.dtype) -> dict:
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return {
        "layers": config.num_hidden_layers,
        "context": context,
        "kv_heads": config.num_key_value_heads,
        "head_dim": head_dim,
        "dtype": dtype,
    }


def _check_context(config: object, context: int) -> None:
    window = getattr(config, "sliding_window", None)
    if context > config.max_position_embeddings:
        raise ValueError(f"context {context} is more than the model's {config.max_position_embeddings} positions")
    if window is not None and window < context:
        raise ValueError(f"context {context} is more than the model's sliding window of {window} tokens")
