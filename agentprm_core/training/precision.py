"""bfloat16 where it is fast and float32 where it matters: PyTorch's autocast around a model's forward pass."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import nn

_KERNELS = 64
_CACHES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
"""Environment variables of oneDNN and of what PyTorch puts before it. Both read them at the first product."""


def keep_few_kernels() -> None:
    """Before the first product in bfloat16 on a CPU: keep the kernels of the last 64 shapes, and not of 1,024.

    A kernel is of one shape and takes a megabyte or more. Episodes differ in length, so nearly every step has new
    shapes, and memory grows by gigabytes. What the environment says already stays.
    """
    for name in _CACHES:
        os.environ.setdefault(name, str(_KERNELS))


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
