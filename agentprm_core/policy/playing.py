"""Models of ours that only play and score: the Llama that :func:`agentprm_core.policy.models.new_model` makes, without
transformers' classes, whose import takes seconds.

The same weights, names and numbers as transformers' ``LlamaForCausalLM`` and ``LlamaForTokenClassification``, held
against both by test. There is no dropout, no loss and nothing to save. A command that shows one game reads its
checkpoints through it; what trains reads them through transformers.

Shapes: ``N`` packed tokens, ``D`` head size, ``W`` width.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from agentprm_core.errors import DataError
from agentprm_core.training.attention import Blocks, attend_packed

CLASSES = {"policy": "LlamaForCausalLM", "prm": "LlamaForTokenClassification"}
"""What a checkpoint's configuration names that can be read so."""
_PLAIN = {"mlp_bias": False, "hidden_act": "silu", "tie_word_embeddings": True}


def is_plain(folder: Path, kind: str) -> bool:
    """Whether :class:`PlayingLlama` computes what transformers would with this checkpoint folder: a whole model of
    this ``kind`` with nothing in its configuration that is not built here."""
    path = folder / "config.json"
    if not path.exists():  # an adapter's
        return False
    config = json.loads(path.read_text())
    built, rotary = config.get("architectures") == [CLASSES[kind]], config.get("rope_parameters") or {}
    built = built and isinstance(config.get("attention_bias"), bool)
    return built and rotary.get("rope_type") == "default" and all(config.get(key) == _PLAIN[key] for key in _PLAIN)


def load_playing(folder: Path, kind: str, dtype: torch.dtype) -> PlayingLlama:
    """The model of a checkpoint folder that :func:`is_plain`. Raises DataError where its weights cannot be read or do
    not fit."""
    model = PlayingLlama(json.loads((folder / "config.json").read_text()), scores=kind == "prm")
    try:
        weights = load_file(folder / "model.safetensors")
        model.load_state_dict({name: weight.to(dtype) for name, weight in weights.items()}, assign=True)
    except (OSError, SafetensorError, RuntimeError) as error:
        said = " ".join(str(error).split())[:300]
        raise DataError(f"{folder}: its weights cannot be loaded: {said}; restore the folder") from error
    return model


class PlayingLlama(nn.Module):
    """A causal model whose embedding is also its output; with ``scores`` a token classifier with one label."""

    base_model_prefix = "model"

    def __init__(self, config: dict, *, scores: bool) -> None:
        super().__init__()
        self.config: Any = SimpleNamespace(**config)
        with torch.random.fork_rng(devices=()):  # torch draws weights that are then loaded
            self.model = _Trunk(self.config)
            if scores:
                self.score = nn.Linear(self.config.hidden_size, 1)

    @property
    def device(self) -> torch.device:
        return self.model.embed_tokens.weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.model.embed_tokens.weight.dtype

    def get_input_embeddings(self) -> nn.Embedding:
        return self.model.embed_tokens

    def get_output_embeddings(self) -> nn.Module:
        return _Output(self.model.embed_tokens)

    def forward(
        self,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor,
        packed: Blocks,
        logits_to_keep: torch.Tensor | slice = slice(None),
        **_: object,
    ) -> SimpleNamespace:
        """``logits`` [1, N, vocabulary] of a policy, [1, N, 1] of a PRM, of the tokens ``logits_to_keep``; and
        ``hidden_states``, whose last is [1, N, W]. ``input_ids`` and ``position_ids`` are [1, N]."""
        hidden = self.model(input_ids, position_ids, packed)
        head = getattr(self, "score", None) or self.get_output_embeddings()
        return SimpleNamespace(logits=head(hidden[:, logits_to_keep]), hidden_states=(hidden,))


class _Output(nn.Module):
    """Logits by the transposed embedding."""

    def __init__(self, embedding: nn.Embedding) -> None:
        super().__init__()
        self.weight = embedding.weight

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return F.linear(hidden, self.weight)


class _Trunk(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(_Layer(config, number) for number in range(config.num_hidden_layers))
        self.norm = _Norm(config)

    def forward(self, ids: torch.Tensor, positions: torch.Tensor, packed: Blocks) -> torch.Tensor:
        hidden = self.embed_tokens(ids)
        cos, sin = self.rotary_emb(hidden, positions)
        for layer in self.layers:
            hidden = layer(hidden, cos, sin, packed)
        return self.norm(hidden)

    def rotary_emb(self, like: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosine and sine [1, N, D] of each position's angles, of the kind of ``like``."""
        size, base = self.config.head_dim, self.config.rope_parameters["rope_theta"]
        steps = torch.arange(0, size, 2, dtype=torch.int64, device=like.device).float()
        angles = positions[..., None].float() * (1.0 / base ** (steps / size))  # rounded as transformers does
        angles = torch.cat((angles, angles), -1)
        return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


class _Layer(nn.Module):
    def __init__(self, config: Any, number: int) -> None:
        super().__init__()
        self.self_attn = _Attention(config, number)
        self.mlp = _Gated(config)
        self.input_layernorm = _Norm(config)
        self.post_attention_layernorm = _Norm(config)

    def forward(self, hidden: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, packed: Blocks) -> torch.Tensor:
        hidden = hidden + self.self_attn(self.input_layernorm(hidden), cos, sin, packed)
        return hidden + self.mlp(self.post_attention_layernorm(hidden))


class _Attention(nn.Module):
    def __init__(self, config: Any, number: int) -> None:
        super().__init__()
        self.layer_idx, self.head_dim, self.scaling = number, config.head_dim, config.head_dim**-0.5
        width, own, shared = config.hidden_size, config.num_attention_heads, config.num_key_value_heads
        biased = bool(config.attention_bias)
        self.q_proj = nn.Linear(width, own * config.head_dim, bias=biased)
        self.k_proj = nn.Linear(width, shared * config.head_dim, bias=biased)
        self.v_proj = nn.Linear(width, shared * config.head_dim, bias=biased)
        self.o_proj = nn.Linear(own * config.head_dim, width, bias=biased)

    def forward(self, hidden: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, packed: Blocks) -> torch.Tensor:
        query, key = (_rotate(self._heads(part(hidden)), cos, sin) for part in (self.q_proj, self.k_proj))
        value = self._heads(self.v_proj(hidden))
        seen, _ = attend_packed(self, query, key, value, None, self.scaling, packed)
        return self.o_proj(seen.flatten(2))

    def _heads(self, packed: torch.Tensor) -> torch.Tensor:
        """[1, N, heads · D] to [1, heads, N, D]."""
        return packed.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)


class _Gated(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.down_proj(F.silu(self.gate_proj(hidden)) * self.up_proj(hidden))


class _Norm(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(config.hidden_size))
        self.variance_epsilon = config.rms_norm_eps

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        exact = hidden.float()
        exact = exact * torch.rsqrt(exact.square().mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * exact.to(hidden.dtype)


def _rotate(x_1HND: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x_1HND.chunk(2, -1)
    return x_1HND * cos + torch.cat((-second, first), -1) * sin
