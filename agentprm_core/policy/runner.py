"""Runs a Hugging Face model over a cache of slots: ragged new tokens in, hidden states where they are wanted out.

One call reads the new tokens of many slots, packed end to end without padding. Everything but attention works on the
packed row; attention writes the new keys and values into the cache and reads each slot's rows. Llama and its kin run
through :mod:`agentprm_core.policy.llama`, any other causal model through transformers' own forward and its attention
hook (``ALL_ATTENTION_FUNCTIONS``); with or without LoRA. The same code serves the policy and the PRM.

A slot's new tokens may fan out into *branches* that see the slot's history and themselves, but not each other: that is
how a PRM scores many candidate actions of one state in one call.

Shapes: ``N`` packed tokens, ``R`` places read, ``H`` query heads, ``D`` head size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import torch
from torch import nn

from agentprm_core.policy.cache import KeyValueCache, slot_bytes
from agentprm_core.policy.likelihood import action_log_likelihood
from agentprm_core.policy.llama import LlamaTrunk, is_kin
from agentprm_core.policy.models import embedding_of, without_adapter
from agentprm_core.policy.slot_attention import Plan, Queries, attend, past_masks

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ATTENTION = "agentprm_slots"


class Extension(NamedTuple):
    """New tokens of one slot: ``tokens`` are kept, ``branches`` are seen after them and forgotten."""

    slot: int
    tokens: Sequence[int]
    reads: int = 1
    """How many of the last tokens are read; 0 where only branches are, each at its last token."""
    branches: Sequence[Sequence[int]] = ()
    throughout: bool = False
    """Whether branches are read at all their tokens."""

    @property
    def places(self) -> int:
        """How many are read."""
        return self.reads + (sum(map(len, self.branches)) if self.throughout else len(self.branches))


class CachedModel:
    """A causal model or a token scorer with a key-value cache of ``slots`` conversations of ``context`` tokens."""

    def __init__(self, model: PreTrainedModel, *, slots: int, context: int, branch_room: int = 0) -> None:
        """``branch_room``: tokens that the branches of one extension may have together, beyond the context.

        Raises ValueError where the model cannot hold ``context`` tokens.
        """
        base = without_adapter(model)
        config = base.config
        _check_context(config, context)
        trunk = getattr(base, base.base_model_prefix)
        self._trunk = LlamaTrunk(trunk, context) if is_kin(base) else _HookedTrunk(trunk)
        scores = hasattr(base, "score")
        self._head = cast(nn.Module, base.score if scores else base.get_output_embeddings())
        # a PRM has no output over tokens: its transposed embedding says how likely they are
        self._spoken_VW = embedding_of(base).weight if scores else cast(torch.Tensor, self._head.weight)
        self.device, self.context = base.device, context
        if self.device.type == "cuda":  # cuDNN's attention fails on these masks (H100, torch 2.11)
            torch.backends.cuda.enable_cudnn_sdp(False)
        self.cache = KeyValueCache(slots=slots, device=base.device, **_sizes(config, context + branch_room, base.dtype))
        self._groups = config.num_attention_heads // config.num_key_value_heads
        self._past = past_masks(context + branch_room, base.dtype, base.device)
        self.tokens_read = 0

    @torch.inference_mode()
    def extend(self, extensions: Sequence[Extension]) -> torch.Tensor:
        """Read the new tokens; returns the last hidden states [R, width] of each extension in order.

        Raises ValueError for one without a token, for more reads than tokens, for none at all, for two extensions of
        one slot, and where a slot would outgrow the context.
        """
        pack = _Pack.of(extensions, self.cache, self.context)
        self.tokens_read += len(pack.tokens)
        places = self.cache.claim(pack.queries.slots, pack.queries.rows)
        buckets = pack.queries.buckets(self._groups, self._past)
        last = pack.last.buckets(self._groups, self._past, buckets if pack.trailing else ())
        hidden = self._trunk(
            self._tensor(pack.tokens),
            self._tensor(pack.positions),
            self._tensor(pack.read),
            Plan(self.cache, places, buckets),
            Plan(self.cache, places, last),
        )
        for extension in extensions:
            self.cache.lengths[extension.slot] += len(extension.tokens)
        return hidden.index_select(0, self._tensor(pack.order))

    @torch.inference_mode()
    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits [R, vocabulary] of a policy, scores [R, 1] of a PRM, in float32."""
        return self._head(hidden).float()

    @torch.inference_mode()
    def log_likelihood(
        self,
        hidden_NW: torch.Tensor,
        ids_N: torch.Tensor,
        parent_N: torch.Tensor,
        end_M: torch.Tensor,
        span_M: torch.Tensor,
    ) -> torch.Tensor:
        """As :func:`agentprm_core.policy.likelihood.action_log_likelihood`, with the model's own output."""
        return action_log_likelihood(hidden_NW, self._spoken_VW, ids_N, parent_N, end_M, span_M)

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).to(self.device)


def cache_bytes(model: PreTrainedModel, context: int) -> int:
    """Memory of one slot of ``context`` tokens."""
    base = without_adapter(model)
    return slot_bytes(**_sizes(base.config, context, base.dtype))


def slots_within(model: PreTrainedModel, *, context: int, memory_mb: float) -> int:
    """How many slots of ``context`` tokens the cache may have. Raises ValueError when it is less than one."""
    slots = int(memory_mb * 2**20 // cache_bytes(model, context))
    if slots < 1:
        raise ValueError(f"a cache of {memory_mb} MiB holds no slot of {context} tokens")
    return slots


@dataclass(frozen=True, slots=True)
class _Pack:
    """The tokens of one call end to end: their ids and positions, the queries they make, and which are read."""

    tokens: np.ndarray
    positions: np.ndarray
    queries: Queries
    read: np.ndarray
    """Per read place its token."""
    last: Queries
    """The queries of those."""
    trailing: bool
    """Whether they are the last ones of every slot."""
    order: np.ndarray
    """Per read place, in the order of the caller's extensions, its number in ``read``."""

    @classmethod
    def of(cls, extensions: Sequence[Extension], cache: KeyValueCache, context: int) -> _Pack:
        """Slots are sorted by their new tokens, then by what they hold: neighbours share a bucket of attention."""
        totals = [len(e.tokens) + sum(map(len, e.branches)) for e in extensions]
        reads = [e.places for e in extensions]
        if not all(reads) or any(e.reads > len(e.tokens) for e in extensions):
            raise ValueError("an extension without a token that is read, or with fewer tokens than are read")
        if len({e.slot for e in extensions}) < len(extensions):
            raise ValueError("two extensions of one slot in one call")
        order = sorted(range(len(extensions)), key=lambda i: (totals[i], reads[i], cache.lengths[extensions[i].slot]))
        # a piece (P) is an extension's (E) kept tokens or one of its branches
        pieces: list[Sequence[int]] = []
        position_P, read_P, pieces_E = [], [], []
        for number in order:
            extension, before = extensions[number], len(pieces)
            length = cache.lengths[extension.slot]
            if extension.tokens:
                pieces.append(extension.tokens)
                position_P.append(length)
                read_P.append(extension.reads)
            pieces += extension.branches
            position_P += [length + len(extension.tokens)] * len(extension.branches)
            read_P += map(len, extension.branches) if extension.throughout else [1] * len(extension.branches)
            pieces_E.append(len(pieces) - before)
        count_P, position_P = np.array([len(piece) for piece in pieces]), np.array(position_P)
        if not count_P.all():
            raise ValueError("a branch without a token")
        slots = [extensions[number].slot for number in order]
        slot_E, length_E = np.array(slots), np.array([cache.lengths[slot] for slot in slots])
        total_E, reads_E = np.array(totals)[order], np.array(reads)[order]
        first_E, first_P = np.cumsum(total_E) - total_E, np.cumsum(count_P) - count_P
        row_P = first_P + np.repeat(length_E - first_E, pieces_E)
        _check_room(np.repeat(slot_E, pieces_E), position_P + count_P, row_P + count_P, cache, context)
        within = np.arange(total_E.sum()) - np.repeat(first_P, count_P)
        queries = Queries(
            slots=np.repeat(slot_E, total_E),
            rows=np.repeat(row_P, count_P) + within,
            history=np.repeat(position_P, count_P),
            start=np.repeat(row_P, count_P),
            first=first_E,
            count=total_E,
            branched=any(extension.branches for extension in extensions),
        )
        read = np.flatnonzero(within >= np.repeat(count_P - read_P, count_P))
        return cls(
            np.fromiter(chain.from_iterable(pieces), np.int64, int(total_E.sum())),
            queries.history + within,
            queries,
            read,
            queries.some(read, np.cumsum(reads_E) - reads_E, reads_E),
            all(extension.throughout or not extension.branches for extension in extensions),
            np.argsort(np.repeat(order, reads_E), kind="stable"),
        )


def _check_room(slots: np.ndarray, tokens: np.ndarray, rows: np.ndarray, cache: KeyValueCache, context: int) -> None:
    """Per piece its slot, and the tokens and rows that the slot has up to its end."""
    if (tokens > context).any():
        worst = tokens.argmax()
        raise ValueError(f"slot {slots[worst]} would hold {tokens[worst]} tokens, its context is {context}")
    if (rows > cache.context).any():
        worst = rows.argmax()
        raise ValueError(f"slot {slots[worst]}: its branches need {rows[worst]} rows, the cache has {cache.context}")


class _HookedTrunk:
    """transformers' own forward, its attention replaced for the time of the call."""

    def __init__(self, trunk: Any) -> None:
        from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

        ALL_ATTENTION_FUNCTIONS.register(ATTENTION, _hook)
        self._trunk = trunk

    def __call__(
        self, tokens_N: torch.Tensor, positions_N: torch.Tensor, read_R: torch.Tensor, every: Plan, last: Plan
    ) -> torch.Tensor:
        config = self._trunk.config
        configured = config._attn_implementation
        config._attn_implementation = ATTENTION
        try:
            hidden = self._trunk(
                input_ids=tokens_N[None],
                position_ids=positions_N[None],
                attention_mask=_NO_MASK,
                use_cache=False,
                slots_plan=every,
            ).last_hidden_state[0]
        finally:
            config._attn_implementation = configured
        return hidden[read_R]


def _hook(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor,
    scaling: float,
    slots_plan: Plan,
    **_: object,
) -> tuple[torch.Tensor, None]:
    """The attention of one layer; ``query`` is [1, H, N, D], the result [1, N, H, D]."""
    slots_plan.write(module.layer_idx, key[0].transpose(0, 1), value[0].transpose(0, 1))
    seen = attend(slots_plan, module.layer_idx, query[0].transpose(0, 1), scaling)
    return seen[None].contiguous(), None


_NO_MASK = torch.empty(1, 1, 1, 1)
"""A mask of four dimensions is handed on untouched: the plan holds the real ones."""


def _sizes(config: Any, context: int, dtype: torch.dtype) -> dict:
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return {
        "layers": config.num_hidden_layers,
        "context": context,
        "kv_heads": config.num_key_value_heads,
        "head_dim": head_dim,
        "dtype": dtype,
    }


def _check_context(config: Any, context: int) -> None:
    window = getattr(config, "sliding_window", None)
    if context > config.max_position_embeddings:
        raise ValueError(f"context {context} is more than the model's {config.max_position_embeddings} positions")
    if window is not None and window < context:
        raise ValueError(f"context {context} is more than the model's sliding window of {window} tokens")
