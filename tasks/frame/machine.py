"""What the machine is asked for: device and threads, and how it trains."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from agentprm_core.training.hardware import Hardware
from agentprm_core.training.precision import keep_few_kernels
from tasks.frame.quiet import quiet
from tasks.frame.stage import StageError

if TYPE_CHECKING:
    from tasks.frame.sections import Compute, Params


def use(compute: Compute) -> None:
    """Set torch's threads; raises StageError where the device is not there, or not as many as processes train."""
    if compute.device == "cuda" and not torch.cuda.is_available():
        raise StageError("params.yaml: compute.device is 'cuda', and torch sees no GPU here (CUDA_VISIBLE_DEVICES?)")
    gpus, wanted = torch.cuda.device_count(), compute.parallel.processes if compute.parallel else 1
    if compute.device == "cuda" and gpus < wanted:
        raise StageError(f"params.yaml: compute.parallel.processes is {wanted}, and torch sees {gpus} GPU here")
    torch.set_num_threads(compute.threads)
    if (compute.device, compute.precision) == ("cpu", "bfloat16"):
        keep_few_kernels()
    quiet()


def hardware(params: Params) -> Hardware:
    """How this machine trains."""
    compute, parallel = params.compute, params.compute.parallel
    return Hardware(
        optimizer=params.model.optimizer,
        precision=compute.precision,
        pass_tokens=compute.pass_tokens,
        save_every=compute.save_every,
        processes=parallel.processes if parallel else 1,
        sharding=parallel.sharding if parallel else "none",
        gradient_checkpointing=params.model.gradient_checkpointing,
    )
