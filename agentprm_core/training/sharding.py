"""Parameters, gradients and optimizer state in shards, one a process: FSDP2 (``torch.distributed.fsdp.fully_shard``).

A decoder layer is gathered when it computes, forward and backward, and freed after. What lies outside of the layers
(embedding, last norm, head) stays whole from forward to the end of backward: objectives read the embedding beside the
model's output, and its gradient comes from both. Gradients are averaged over the processes, as DDP does.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

import torch
from torch import nn

from agentprm_core.errors import DataError

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule


def shard(model: nn.Module, device: str, precision: str) -> None:
    """Shard ``model`` in place over the processes of the launcher this one runs under, on ``device``. It may lie on
    the CPU: layers move one by one, so no device holds all of it.

    With ``precision`` ``bfloat16`` layers are gathered in it: their matrices, which autocast would cast to it anyway,
    and their norms, which it would not. Shards, gradients and what lies outside of the layers stay as they are.

    Raises:
        DataError: a model whose decoder layers are not transformers' usual ones, so that it would be gathered whole.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from transformers.modeling_layers import GradientCheckpointingLayer

    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        raise DataError(
            f"a {type(model).__name__} has no layers that could be sharded one by one: set compute.parallel.sharding "
            "to none"
        )
    # of an in-place operation on an output, which nothing here does
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    mesh = init_device_mesh(device, (int(os.environ["WORLD_SIZE"]),))
    gathered_as = torch.bfloat16 if precision == "bfloat16" else None
    policy = MixedPrecisionPolicy(gathered_as, reduce_dtype=torch.float32, cast_forward_inputs=False)
    for layer in reversed(layers):
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, reshard_after_forward=False)


def is_sharded(model: nn.Module) -> bool:
    from torch.distributed.fsdp import FSDPModule

    return isinstance(model, FSDPModule)


def whole_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """``tensor`` itself, or gathered from all processes, each of which calls this for the same tensors in turn."""
    from torch.distributed.tensor import DTensor

    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


@contextmanager
@torch.no_grad()
def in_place(model: nn.Module, weights: Mapping[str, torch.Tensor]) -> Iterator[None]:
    """Within the block the sharded ``model`` has ``weights``, shards by name, in place of its own. Only for reading
    without gradient."""
    sharded = cast("FSDPModule", model)
    sharded.reshard()
    trained = {name: p for name, p in model.named_parameters() if name in weights}
    current = {name: p.detach().clone() for name, p in trained.items()}
    for name, p in trained.items():
        p.copy_(weights[name])
    try:
        yield
    finally:
        sharded.reshard()
        for name, p in trained.items():
            p.copy_(current[name])
