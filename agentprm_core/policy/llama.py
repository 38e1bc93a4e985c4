"""The decoder of Llama and its kin over a cache of slots, with nothing computed that nobody reads.

The same modules and weights as transformers' own forward, live (a LoRA or an optimizer step shows at once), in fewer
and fused operations; and in the last layer, where a token that is not read matters only by its key and value, nothing
else of it is computed. Held against transformers' forward by test.

Shapes: ``N`` packed tokens, ``R`` of them read, ``H`` query heads, ``K`` key-value heads, ``D`` head size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from agentprm_core.policy.slot_attention import Plan, attend

if TYPE_CHECKING:
    from transformers import PreTrainedModel

FAMILY = ("llama", "mistral", "qwen2")
"""Model types built like this: pre-norm, rotary positions over the whole head, gated SiLU, biases or none."""


def is_kin(model: PreTrainedModel) -> bool:
    """Whether :class:`LlamaTrunk` computes what ``model`` does."""
    config = model.config
    plain_rotary = "dynamic" not in str(config.rope_parameters.get("rope_type"))
    return config.model_type in FAMILY and config.hidden_act == "silu" and plain_rotary


class LlamaTrunk:
    """Last hidden states of packed tokens; ``trunk`` is a ``LlamaModel`` or one of its kin."""

    def __init__(self, trunk: Any, positions: int) -> None:
        self._trunk = trunk
        heads, weight = trunk.config.num_attention_heads, trunk.embed_tokens.weight
        cos, sin = trunk.rotary_emb(weight[:1], torch.arange(positions, device=weight.device)[None])
        half = cos.shape[-1] // 2
        # rotate_half(x) is x rolled by half a head, its first half negated: the sign goes into the table
        self._cos = cos[0][:, None].contiguous()
        self._sin = torch.cat((-sin[0, :, :half], sin[0, :, half:]), -1)[:, None].contiguous()
        self._heads = heads

    def __call__(
        self, tokens_N: torch.Tensor, positions_N: torch.Tensor, read_R: torch.Tensor, every: Plan, last: Plan
    ) -> torch.Tensor:
        """Normed hidden states [R, width] of the tokens ``read_R``; ``last`` is the plan of those alone."""
        trunk = self._trunk
        hidden = trunk.embed_tokens(tokens_N)
        cos, sin = self._cos[positions_N], self._sin[positions_N]
        final = len(trunk.layers) - 1
        for number, layer in enumerate(trunk.layers):
            attention = layer.self_attn
            normed = _norm(layer.input_layernorm, hidden)
            key = _rotate(_heads(attention.k_proj(normed), attention.head_dim), cos, sin)
            every.write(number, key, _heads(attention.v_proj(normed), attention.head_dim))
            plan = every
            if number == final:
                plan, hidden, normed = last, hidden[read_R], normed[read_R]
                cos, sin = cos[read_R], sin[read_R]
            query = _rotate(_heads(attention.q_proj(normed), attention.head_dim), cos, sin)
            seen = attend(plan, number, query, attention.scaling)
            hidden = hidden + attention.o_proj(seen.flatten(1))
            normed = _norm(layer.post_attention_layernorm, hidden)
            hidden += layer.mlp.down_proj(F.silu(layer.mlp.gate_proj(normed)).mul_(layer.mlp.up_proj(normed)))
        return trunk.norm(hidden)


def _heads(packed: torch.Tensor, head_dim: int) -> torch.Tensor:
    return packed.view(len(packed), -1, head_dim)


def _rotate(x_NHD: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    return (x_NHD * cos).addcmul_(x_NHD.roll(x_NHD.shape[-1] // 2, -1), sin)


def _norm(norm: Any, hidden: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(hidden, hidden.shape[-1:], norm.weight, norm.variance_epsilon)
