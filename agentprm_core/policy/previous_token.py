"""Attention heads that start by looking at the token before, which copying needs.

To copy what followed a word earlier ("induction") a model needs one head that knows which token was before each token,
and a later one that matches it (Olsson et al. 2022, In-context Learning and Induction Heads). Training from random
weights finds the first kind late. Here some heads of the first layer have it from the start, by the biases of their
queries and keys alone. Rotary positions turn two equal biases into a score that depends on the distance alone:

    score(i, j) = a² / √D · Σ_f cos(ω_f (i − j − o))        largest where token j is o tokens before token i

The biases are weights like any other: they are trained, and transformers reads them (``attention_bias``).

Shapes: ``D`` head size, ``F`` = D / 2 frequencies ω of the rotary positions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM

BIAS = 5.0
"""a: of the queries and keys. With a head size of 32 a head gives about nine tenths of its attention to its token."""
SLOWEST = 0.05
"""Radians a token. Slower frequencies hardly tell neighbours apart and get no bias: they stay free for the content."""


@torch.no_grad()
def look_back(model: LlamaForCausalLM, heads: int) -> None:
    """Let the first ``heads`` heads of the first layer start by looking 1, 2, … tokens back. All other biases become 0.

    Raises:
        ValueError: more heads than there are.
    """
    if not heads:
        return
    config: Any = model.config
    if heads > config.num_attention_heads:
        raise ValueError(f"previous_token_heads {heads} is more than heads, {config.num_attention_heads}")
    for name, weight in model.named_parameters():
        if name.endswith("_proj.bias"):
            weight.zero_()
    size, shared_by = config.head_dim, config.num_attention_heads // config.num_key_value_heads
    turn_F = model.model.rotary_emb.inv_freq
    bias_F = torch.where(turn_F > SLOWEST, BIAS, 0.0)
    attention: Any = model.model.layers[0].self_attn
    query_HD, key_KD = attention.q_proj.bias.view(-1, size), attention.k_proj.bias.view(-1, size)
    for head in range(heads):
        key_KD[head // shared_by] = torch.cat((bias_F, torch.zeros_like(bias_F)))
        back_F = -(head + 1) * turn_F
        query_HD[head] = torch.cat((bias_F * back_F.cos(), bias_F * back_F.sin()))
