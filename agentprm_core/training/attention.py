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

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import nn
from transformers import PreTrainedModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

ATTENTION = "agentprm_packed"


@contextmanager
def packed_attention(model: PreTrainedModel) -> Iterator[None]:
    """Within the block ``model`` reads packed batches (:func:`forward`), and only those."""
    config = model.config
    configured = config._attn_implementation
    config._attn_implementation = ATTENTION
    try:
        yield
    finally:
        config._attn_implementation = configured


def to_device(batch: dict, device: torch.device) -> dict:
    """The packed batch on ``device``."""
    groups = [{name: x.to(device) for name, x in block.items()} for block in batch["groups"]]
    return {name: x.to(device) for name, x in batch.items() if name != "groups"} | {"groups": groups}


def forward(model: nn.Module, batch: dict, **options: object):
    """The model's output on a packed batch (:func:`agentprm_core.training.packing.pack`): logits are [1, N, …]."""
    groups = [(block["index"], _mask(block)) for block in batch["groups"]]
    return model(
        input_ids=batch["input_ids"][None],
        position_ids=batch["position_ids"][None],
        attention_mask=_NO_MASK,
        use_cache=False,
        packed=(groups, batch["back"]),
        **options,
    )


def log_probs(model: nn.Module, batch: dict, where_N: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Of the P tokens where ``where_N``: log-probability after their parent (P,) float32 nats, and whether each is the
    likeliest (P,) bool. Logits are made for these tokens alone."""
    ids_P = batch["input_ids"][where_N]
    logits_PV = forward(model, batch, logits_to_keep=batch["parent"][where_N]).logits[0].float()
    return -F.cross_entropy(logits_PV, ids_P, reduction="none"), logits_PV.detach().argmax(-1) == ids_P


def tree_mask(segment_BL: torch.Tensor, sees_BL: torch.Tensor) -> torch.Tensor:
    """(B, 1, L, L) bool: whether query l sees key k. Padding sees only padding, so no query sees nothing."""
    index_L = torch.arange(segment_BL.shape[1], device=segment_BL.device)
    of_trunk_BLL = (segment_BL == 0)[:, None, :] & (index_L < sees_BL[:, :, None])
    of_own_BLL = (segment_BL[:, :, None] == segment_BL[:, None, :]) & (segment_BL != 0)[:, None, :]
    return (of_trunk_BLL | (of_own_BLL & (index_L[:, None] >= index_L)))[:, None]


def _mask(block: dict[str, torch.Tensor]) -> torch.Tensor | None:
    return tree_mask(block["segment"], block["sees"]) if "segment" in block else None


def _attend(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor,
    scaling: float,
    packed: tuple[list[tuple[torch.Tensor, torch.Tensor | None]], torch.Tensor],
    dropout: float = 0.0,
    sliding_window: int | None = None,
    **_: object,
) -> tuple[torch.Tensor, None]:
    """The attention of one layer; ``query`` is [1, H, N, D], the result [1, N, H, D]."""
    if sliding_window is not None:
        raise ValueError("a model with a sliding window cannot be trained on packed batches")
    heads, width = query.shape[1], query.shape[3]
    groups, back_N = packed
    seen = []
    for index_BL, mask in groups:
        q, k, v = (_block(x, index_BL) for x in (query, key, value))
        k, v = (x.repeat_interleave(heads // x.shape[1], 1) for x in (k, v))
        out = F.scaled_dot_product_attention(q, k, v, mask, dropout, is_causal=mask is None, scale=scaling)
        seen.append(out.transpose(1, 2).reshape(-1, heads, width))
    return torch.cat(seen).index_select(0, back_N)[None], None


def _block(x_1KND: torch.Tensor, index_BL: torch.Tensor) -> torch.Tensor:
    """[B, K, L, D] of the packed tokens at ``index_BL``."""
    rows = x_1KND[0].transpose(0, 1).index_select(0, index_BL.view(-1))
    return rows.view(*index_BL.shape, *rows.shape[1:]).transpose(1, 2)


ALL_ATTENTION_FUNCTIONS.register(ATTENTION, _attend)

_NO_MASK = torch.empty(1, 1, 1, 1)
"""A mask of four dimensions is handed on untouched: the blocks hold the real ones."""
