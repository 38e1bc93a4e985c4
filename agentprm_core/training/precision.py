"""bfloat16 where it is fast and float32 where it matters: PyTorch's autocast around a model's forward pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def computing_in(model: nn.Module, precision: str) -> Iterator[None]:
    """Within the block ``model`` computes in ``precision``, whoever calls it: the objective, or a reference that is to
    be compared with it. Weights and their gradients stay as they are."""
    if precision == "float32":
        yield
        return
    device = next(model.parameters()).device.type
    model.forward = torch.autocast(device, torch.bfloat16)(model.forward)  # type: ignore[method-assign]
    try:
        yield
    finally:
        del model.forward
