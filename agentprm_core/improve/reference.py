"""π_{i−1}, the policy before the update, kept as a frozen copy of the weights that are trained.

With LoRA these are the adapter's alone: the base lies in memory once, and the reference is the adapter as it came, not
the base without it. With full fine-tuning it is a second set of weights. Either way no second module is built.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import nn

from agentprm_core.improve.kl import measured
from agentprm_core.training.attention import logits_of, packed_attention


class Reference:
    """Remembers ``model``'s trainable weights as they are now."""

    def __init__(self, model: nn.Module) -> None:
        """Raises ValueError where nothing is trainable."""
        self._model = model
        self._weights = [(p, p.detach().clone()) for p in model.parameters() if p.requires_grad]
        if not self._weights:
            raise ValueError("the model has no trainable weights: was its adapter loaded for inference only?")

    @torch.no_grad()
    def refer(self, batch: dict, where_N: torch.Tensor) -> dict:
        """The packed batch with what π_{i−1} says of its P tokens where ``where_N``.

        Added: ``reference`` (P,), their log-probabilities, nats; ``measured`` (K,), those of the P at which the KL is
        measured, and ``reference_logits`` (K, V) there.
        """
        with packed_attention(self._model), self.in_place():
            logits_PV = logits_of(self._model, batch, where_N)
        reference_P = -F.cross_entropy(logits_PV, batch["input_ids"][where_N], reduction="none")
        at_K = measured(*logits_PV.shape).to(logits_PV.device)
        return batch | {"reference": reference_P, "measured": at_K, "reference_logits": logits_PV[at_K]}

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Within the block the model is π_{i−1}. Only for reading without gradient."""
        current = [p.data for p, _ in self._weights]
        for p, frozen in self._weights:
            p.data = frozen.to(p.device)
        try:
            yield
        finally:
            for (p, _), data in zip(self._weights, current):
                p.data = data
