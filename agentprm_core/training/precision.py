"""bfloat16 where it is fast and float32 where it matters: PyTorch's autocast around a model's forward pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

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
        with _as_they_come(model):
            yield
    finally:
        del model.forward


def _as_they_come(model: nn.Module) -> AbstractContextManager[None]:
    """Adapters read their inputs as they come. PEFT would cast them to the adapter's float32, and autocast back."""
    if not hasattr(model, "peft_config"):
        return nullcontext()
    from peft.helpers import disable_input_dtype_casting

    return disable_input_dtype_casting(model)
