"""A model's layers through ``torch.compile``: fewer passes over memory for the same sums."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def compiled_layers(model: nn.Module, compiled: bool) -> Iterator[None]:
    """Within the block each layer of ``model`` runs compiled, if ``compiled``: layers of transformers' own models do.

    All layers share one program, for any number of tokens, where rows attend as they lie
    (:attr:`agentprm_core.training.attention.Blocks.rows`). Elsewhere another number of blocks compiles anew. The first
    step waits for the compiler. Weights and their names stay as they are.
    """
    if not compiled:
        yield
        return
    from transformers.modeling_layers import GradientCheckpointingLayer  # takes seconds to import

    layers = [part for part in model.modules() if isinstance(part, GradientCheckpointingLayer)]
    for layer in layers:
        layer.compile(dynamic=True)
    try:
        yield
    finally:
        for layer in layers:
            layer._compiled_call_impl = None
