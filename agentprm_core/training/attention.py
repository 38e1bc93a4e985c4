"""Attention for packed batches: every row of a pack sees itself only, a branch its trunk up to where it starts.

Everything but attention works on the pack as one sequence. Attention goes through transformers' own hook: rows of like
length are gathered into padded blocks, attend there, and are put back. So any causal model of the library that uses the
hook trains here, under DDP, FSDP, LoRA, autocast and gradient checkpointing alike.

A branch sees ``trunk[:at]`` and itself, neither the rest of the trunk nor another branch, and its positions go on from
``at``: its scores, log-probabilities and gradients are those of the row ``trunk[:at] + branch`` on its own, for the
price of its own tokens.

Shapes: ``N`` packed tokens, ``B`` rows of a block, ``L`` tokens of its longest, ``H`` heads, ``K`` key-value heads,
``D`` head size, ``V`` vocabulary, ``P`` tokens asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.nn.functional as F
from torch import nn

from agentprm_core.errors import DataError
from agentprm_core.training.packing import Batch, Block, Fork

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ATTENTION = "agentprm_packed"
_AMPERE = 8
"""The first generation of GPUs on which PyTorch's kernel for rows runs."""
_TWO_BYTES, _WIDEST = (torch.bfloat16, torch.float16), 256
"""What that kernel computes in, and its largest head size."""
_SHORT = 512
"""Tokens of a row up to which its attention weights, a square of it, are kept for the backward pass."""


@contextmanager
def packed_attention(model: PreTrainedModel) -> Iterator[None]:
    """Within the block ``model`` reads packed batches (:func:`forward`), and only those."""
    config = model.config
    if not hasattr(config, "_attn_implementation"):  # agentprm_core.policy.playing attends so by itself
        yield
        return
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS  # takes seconds to import

    if model.device.type == "cuda":  # cuDNN plans anew for each shape, and packed rows have new ones in each step
        torch.backends.cuda.enable_cudnn_sdp(False)
    ALL_ATTENTION_FUNCTIONS.register(ATTENTION, attend_packed)
    configured = config._attn_implementation
    config._attn_implementation = ATTENTION
    try:
        yield
    finally:
        config._attn_implementation = configured


def forward(model: nn.Module, batch: Batch, **options: object):
    """The model's output on a packed batch: logits are [1, N, …]."""
    return read(model, batch.input_ids, batch.position_ids, forward_blocks(batch), **options)


@dataclass(frozen=True)
class Blocks:
    """Who sees whom among the packed tokens."""

    groups: Sequence[tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]]
    """Of each block the queries [B, Q] (packed tokens), the keys [B, L] (of all tokens read) and the mask [B, 1, Q, L];
    without a mask the rows are plainly causal and queries are keys."""
    back_N: torch.Tensor
    """Where each packed token's query stands in all blocks end to end."""
    memory: Memory | None = None
    """Keys and values of tokens read before, to be kept and added to."""
    rows: tuple[torch.Tensor, int] | None = None
    """On a GPU whose kernel takes rows as they lie: where each ends [B + 1] int32, and the longest's tokens."""


class Memory:
    """Keys and values of all tokens read so far, in reading order."""

    def __init__(self) -> None:
        self._layers: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def add(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Those of ``layer`` with the new ones, [1, K, N, D] each, at their end."""
        if layer in self._layers:
            key, value = (torch.cat(pair, 2) for pair in zip(self._layers[layer], (key, value)))
        self._layers[layer] = key, value
        return key, value


def forward_blocks(batch: Batch, memory: Memory | None = None) -> Blocks:
    """Who sees whom in a packed batch that is read from its start."""
    groups = [group for block in batch.blocks for group in _groups(block)]
    plain = memory is None and all(block.fork is None for block in batch.blocks)
    return Blocks(groups, batch.back, memory, _rows(batch) if plain and _takes_rows(batch.input_ids.device) else None)


def _takes_rows(device: torch.device) -> bool:
    """Whether PyTorch's kernel for rows of different lengths runs there."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device)[0] >= _AMPERE


def _rows(batch: Batch) -> tuple[torch.Tensor, int]:
    """Where the rows end in the pack, [B + 1] from 0 on, and the longest's tokens."""
    lengths_B = torch.bincount(batch.row, minlength=len(batch.numbers))
    return F.pad(lengths_B.cumsum(0), (1, 0)).to(torch.int32), int(lengths_B.max())


def read(model: nn.Module, ids_N: torch.Tensor, positions_N: torch.Tensor, blocks: Blocks, **options: object):
    """The model's output on packed tokens that see each other as ``blocks`` say."""
    return model(
        input_ids=ids_N[None],
        position_ids=positions_N[None],
        attention_mask=_NO_MASK,
        use_cache=False,
        packed=blocks,
        **options,
    )


Logits = Callable[[Any, Batch, torch.Tensor], torch.Tensor]
"""(model, batch, where_N) → (P, V), as :func:`logits_of`."""


def log_probs(model: nn.Module, batch: Batch, where_N: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Of the P tokens where ``where_N``: log-probability after their parent (P,) float32 nats, and whether each is the
    likeliest (P,) bool."""
    ids_P, logits_PV = batch.input_ids[where_N], logits_of(model, batch, where_N)
    return -F.cross_entropy(logits_PV, ids_P, reduction="none"), logits_PV.detach().argmax(-1) == ids_P


def logits_of(model: nn.Module, batch: Batch, where_N: torch.Tensor) -> torch.Tensor:
    """(P, V) float32: what the P tokens where ``where_N`` are predicted from. Made for these tokens alone."""
    return forward(model, batch, logits_to_keep=batch.parent[where_N]).logits[0].float()


def _groups(block: Block) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]]:
    """Trunks are plainly causal, which the kernels know to halve; only the branches' queries need a mask."""
    if block.fork is None:
        return [(block.index, block.index, None)]
    trunks = block.fork.trunks
    return [(trunks, trunks, None), (block.index.gather(1, block.fork.at), block.index, branch_mask(block.fork))]


def branch_mask(fork: Fork) -> torch.Tensor:
    """(B, 1, Q, L) bool: whether a branch's query sees key l. Padding sees its row's first token."""
    index_L = torch.arange(fork.segment.shape[1], device=fork.at.device)
    segment_BQ, sees_BQ = (of.gather(1, fork.at) for of in (fork.segment, fork.sees))
    of_trunk_BQL = (fork.segment == 0)[:, None, :] & (index_L < sees_BQ[:, :, None])
    of_own_BQL = (segment_BQ[:, :, None] == fork.segment[:, None, :]) & (fork.segment != 0)[:, None, :]
    return (of_trunk_BQL | (of_own_BQL & (fork.at[:, :, None] >= index_L)))[:, None]


def attend_packed(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    packed: Blocks,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    **_: object,
) -> tuple[torch.Tensor, None]:
    """The attention of one layer; ``query`` is [1, H, N, D], the result [1, N, H, D]."""
    if sliding_window is not None:
        raise DataError(
            "a model with a sliding window cannot be trained on packed batches: choose another model.source"
        )
    heads, width = query.shape[1], query.shape[3]
    dtype = _computed_in(query)
    if packed.rows is not None and dtype in _TWO_BYTES and width <= _WIDEST and not dropout:
        ends, longest = packed.rows
        return _by_rows(query.to(dtype), key.to(dtype), value.to(dtype), ends, longest, scaling), None
    if packed.memory is not None:
        key, value = packed.memory.add(module.layer_idx, key, value)
    seen = []
    for queries_BQ, keys_BL, mask in packed.groups:
        q, k, v = _block(query, queries_BQ), _block(key, keys_BL), _block(value, keys_BL)
        k, v = (x.repeat_interleave(heads // x.shape[1], 1) for x in (k, v))
        if mask is None and _products_are_faster(q, dropout):
            out = _causal_products(q, k, v, scaling)
        else:
            out = F.scaled_dot_product_attention(q, k, v, mask, dropout, is_causal=mask is None, scale=scaling)
        seen.append(out.transpose(1, 2).reshape(-1, heads, width))
    return torch.cat(seen).index_select(0, packed.back_N)[None], None


def _computed_in(query: torch.Tensor) -> torch.dtype:
    """The dtype that attention is computed in: under autocast kernels and products cast what they are given."""
    kind = query.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else query.dtype


def _by_rows(
    q_1HND: torch.Tensor,
    k_1KND: torch.Tensor,
    v_1KND: torch.Tensor,
    ends: torch.Tensor,
    longest: int,
    scaling: float,
) -> torch.Tensor:
    """[1, N, H, D] by the kernel for rows of different lengths: no padding, and no row is moved."""
    from torch.nn.attention.varlen import varlen_attn  # takes a second to import

    groups = q_1HND.shape[1] // k_1KND.shape[1]
    q, k, v = (x[0].transpose(0, 1) for x in (q_1HND, k_1KND, v_1KND))
    k, v = (x.repeat_interleave(groups, 1) if groups > 1 else x for x in (k, v))
    past = (-1, 0)  # all of it, and nothing of the future
    seen = varlen_attn(q.contiguous(), k, v, ends, ends, longest, longest, scale=scaling, window_size=past)
    return cast(torch.Tensor, seen)[None]


def _products_are_faster(q_BHLD: torch.Tensor, dropout: float) -> bool:
    """Whether causal attention is faster as plain products than by PyTorch's kernel: short rows in bfloat16 on a CPU,
    whose kernel computes in float32. There it takes 0.55 of the time up to 400 tokens, and as long at 800."""
    if q_BHLD.device.type != "cpu" or q_BHLD.shape[2] > _SHORT or dropout:
        return False
    return _computed_in(q_BHLD) == torch.bfloat16


def _causal_products(q_BHLD: torch.Tensor, k_BHLD: torch.Tensor, v_BHLD: torch.Tensor, scaling: float) -> torch.Tensor:
    length = q_BHLD.shape[2]
    mask_LL = q_BHLD.new_full((length, length), -torch.inf).triu_(1)
    q, k, v = (x.flatten(0, 1) for x in (q_BHLD, k_BHLD, v_BHLD))
    weights = torch.baddbmm(mask_LL.expand(1, -1, -1), q, k.mT, alpha=scaling).softmax(-1)
    return torch.bmm(weights.to(v.dtype), v).view_as(q_BHLD)


def _block(x_1KND: torch.Tensor, index_BL: torch.Tensor) -> torch.Tensor:
    """[B, K, L, D] of the packed tokens at ``index_BL``."""
    rows = x_1KND[0].transpose(0, 1).index_select(0, index_BL.view(-1))
    return rows.view(*index_BL.shape, *rows.shape[1:]).transpose(1, 2)


_NO_MASK = torch.empty(1, 1, 1, 1)
"""A mask of four dimensions is handed on untouched: the blocks hold the real ones."""
