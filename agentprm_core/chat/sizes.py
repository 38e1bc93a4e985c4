"""The sizes of chat models that are trained here from scratch (:mod:`agentprm_core.chat.model`)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ChatSize:
    """How large a model, and how long it is trained."""

    width: int
    layers: int
    heads: int
    kv_heads: int
    vocabulary: int
    """At most."""
    context: int
    """Tokens that the model can read."""
    longest: int
    """Tokens of a dialogue that is learnt from; longer ones are left out."""
    dialogues: int
    steps: int
    batch_tokens: int
    learning_rate: float


SIZES = {
    "tiny": ChatSize(96, 3, 3, 1, 1024, 4096, 1536, 1500, 250, 4096, 2e-3),
    "medium": ChatSize(192, 4, 3, 1, 2048, 8192, 1536, 2400, 350, 4096, 1.5e-3),
    "small": ChatSize(384, 6, 6, 2, 4096, 8192, 1536, 5000, 400, 6144, 1e-3),
}
"""``tiny`` is for tests and says next to nothing. ``medium`` plays easy games, ``small`` is the usual one."""
