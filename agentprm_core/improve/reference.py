"""The anchor of an update: π_{i−1} as it came, or another policy, as frozen weights in place of those that are trained.

With LoRA these are the adapter's alone: the base lies in memory once, and the reference is the adapter as it came, not
the base without it. With full fine-tuning it is a second set of weights. Either way no second module is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from agentprm_core.improve.kl import ReferredBatch, measured
from agentprm_core.training.attention import Logits, logits_of, packed_attention
from agentprm_core.training.columns import C
from agentprm_core.training.packing import Batch
from agentprm_core.training.sharding import in_place, is_sharded

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Reference:
    """Remembers ``model``'s trainable weights as they are now, or those of ``anchor``, a model of the same parts."""

    def __init__(self, model: PreTrainedModel, anchor: PreTrainedModel | None = None) -> None:
        """Raises ValueError where nothing is trainable, or where ``anchor`` lacks a trainable weight."""
        self._model = model
        trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        if not trained:
            raise ValueError("the model has no trainable weights: was its adapter loaded for inference only?")
        kept = trained if anchor is None else dict(anchor.named_parameters())
        odd = [name for name, p in trained.items() if name not in kept or kept[name].shape != p.shape]
        if odd:
            raise ValueError(f"the anchor is another kind of model: it has no {odd[0]} of the policy's shape")
        self.weights = {name: kept[name].detach().to(p, copy=True) for name, p in trained.items()}
        """By name, those of the reference."""
        self._trained = trained

    @torch.no_grad()
    def refer(self, batch: Batch[C], where_N: torch.Tensor, read: Logits = logits_of) -> ReferredBatch[C]:
        """The packed batch with what the reference says of its P tokens where ``where_N``, as ``read`` reads it."""
        with packed_attention(self._model), self.in_place():
            logits_PV = read(self._model, batch, where_N)
        reference_P = -F.cross_entropy(logits_PV, batch.input_ids[where_N], reduction="none")
        at_K = measured(*logits_PV.shape).to(logits_PV.device)
        return ReferredBatch(**vars(batch), reference=reference_P, measured=at_K, reference_logits=logits_PV[at_K])

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Within the block the model is the reference. Only for reading without gradient."""
        if is_sharded(self._model):
            with in_place(self._model, self.weights):
                yield
            return
        current = {name: p.data for name, p in self._trained.items()}
        for name, p in self._trained.items():
            p.data = self.weights[name].to(p.device)
        try:
            yield
        finally:
            for name, p in self._trained.items():
                p.data = current[name]
