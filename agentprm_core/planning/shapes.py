"""The shape of a decoder of Llama's family, from its ``config.json`` or from a table of public ones.

Shapes: ``L`` layers, ``W`` width, ``I`` width of the feed-forward layer, ``H`` query heads, ``K`` key-value heads,
``D`` head size, ``V`` vocabulary.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from agentprm_core.errors import DataError
from agentprm_core.policy.llama import FAMILY


@dataclass(frozen=True)
class ModelShape:
    """All that memory and arithmetic depend on."""

    layers: int
    width: int
    inner: int
    heads: int
    kv_heads: int
    head: int
    vocabulary: int
    tied: bool
    """Whether the embedding is also the output."""
    biased: bool = False
    """Whether queries, keys and values have a bias (Qwen2, and Llama with ``attention_bias``)."""
    positions: int = 131_072
    """Tokens that it can read."""
    biased_output: bool = False
    """Whether what the heads read has a bias too (Llama with ``attention_bias``)."""

    @property
    def linear(self) -> dict[str, tuple[int, int]]:
        """(rows, columns) of the matrices of a layer, by the name that LoRA knows them by."""
        wide, narrow = self.heads * self.head, self.kv_heads * self.head
        return {
            "q_proj": (wide, self.width),
            "k_proj": (narrow, self.width),
            "v_proj": (narrow, self.width),
            "o_proj": (self.width, wide),
            "gate_proj": (self.inner, self.width),
            "up_proj": (self.inner, self.width),
            "down_proj": (self.width, self.inner),
        }

    @property
    def matrices(self) -> int:
        """Parameters of all layers' matrices."""
        return self.layers * sum(rows * columns for rows, columns in self.linear.values())

    @property
    def embedding(self) -> int:
        """Parameters of the embedding, and of the output where that is another matrix."""
        return self.vocabulary * self.width * (1 if self.tied else 2)

    @property
    def parameters(self) -> int:
        """All of them, norms and biases too."""
        biases = self.layers * (self.heads + 2 * self.kv_heads) * self.head * self.biased
        biases += self.layers * self.width * self.biased_output
        return self.matrices + self.embedding + (2 * self.layers + 1) * self.width + biases

    def adapter(self, rank: int, modules: tuple[str, ...]) -> int:
        """Parameters of a LoRA adapter. Raises DataError for a matrix that a layer has not."""
        if missing := [name for name in modules if name not in self.linear]:
            allowed = f"matrices of a layer, {', '.join(self.linear)}"
            raise DataError(f"model.lora.modules: {', '.join(missing)} is not allowed: {allowed}")
        return self.layers * rank * sum(sum(self.linear[name]) for name in modules)


SHAPES = {
    "meta-llama/Llama-3.2-1B-Instruct": ModelShape(16, 2048, 8192, 32, 8, 64, 128_256, True),
    "meta-llama/Llama-3.2-3B-Instruct": ModelShape(28, 3072, 8192, 24, 8, 128, 128_256, True),
    "meta-llama/Llama-3.1-8B-Instruct": ModelShape(32, 4096, 14336, 32, 8, 128, 128_256, False),
    "Qwen/Qwen2.5-0.5B-Instruct": ModelShape(24, 896, 4864, 14, 2, 64, 151_936, True, True, 32_768),
    "Qwen/Qwen2.5-1.5B-Instruct": ModelShape(28, 1536, 8960, 12, 2, 128, 151_936, True, True, 32_768),
    "Qwen/Qwen2.5-3B-Instruct": ModelShape(36, 2048, 11008, 16, 2, 128, 151_936, True, True, 32_768),
    "Qwen/Qwen2.5-7B-Instruct": ModelShape(28, 3584, 18944, 28, 4, 128, 152_064, False, True, 32_768),
}
"""By the hub's id, as their ``config.json`` has it."""


def shape_of(source: str) -> ModelShape:
    """Of a model in a folder, or of one in the table.

    Raises:
        DataError: neither; a folder without a ``config.json``; a model of another family.
    """
    folder = Path(source)
    if not folder.is_dir():
        known = {name.lower(): shape for name, shape in SHAPES.items()}
        if shape := known.get(source.lower()) or known.get(f"{source.lower()}-instruct"):
            return shape
        raise DataError(f"{source}: no folder, and not one of the models whose shape is known: {', '.join(SHAPES)}")
    path = folder / "config.json"
    if not path.exists():
        raise DataError(f"{source}: no config.json in it; is it a model's folder?")
    config = json.loads(path.read_text())
    if config.get("model_type") not in FAMILY:
        allowed = ", ".join(FAMILY)
        raise DataError(f"{path}: model_type {config.get('model_type')!r} is not planned for: one of {allowed}")
    heads, width = config["num_attention_heads"], config["hidden_size"]
    return ModelShape(
        layers=config["num_hidden_layers"],
        width=width,
        inner=config["intermediate_size"],
        heads=heads,
        kv_heads=config.get("num_key_value_heads") or heads,
        head=config.get("head_dim") or width // heads,
        vocabulary=config["vocab_size"],
        tied=bool(config.get("tie_word_embeddings", False)),
        biased=config["model_type"] == "qwen2" or bool(config.get("attention_bias", False)),
        positions=config["max_position_embeddings"],
        biased_output=config["model_type"] != "qwen2" and bool(config.get("attention_bias", False)),
    )
