"""What the machine is asked for: device, threads, precision, and the part of every trainer's settings that is ours."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal, Protocol

import torch
from transformers.utils import logging

from agentprm_core.policy.models import Checkpoint, load_checkpoint
from agentprm_core.policy.runner import slots_within
from tasks.frame.params import Compute, Training
from tasks.frame.stage import Stage, StageError


def use(compute: Compute) -> None:
    """Set torch's threads; raises StageError where the device is not there, or not as many as processes train."""
    if compute.device == "cuda" and not torch.cuda.is_available():
        raise StageError("params.yaml: compute.device is 'cuda', and torch sees no GPU here (CUDA_VISIBLE_DEVICES?)")
    gpus = torch.cuda.device_count()
    if compute.device == "cuda" and gpus < compute.processes:
        raise StageError(f"params.yaml: compute.processes is {compute.processes}, and torch sees {gpus} GPU here")
    torch.set_num_threads(compute.threads)
    quiet()


def quiet() -> None:
    """No progress bars of transformers' own where nobody watches."""
    if not sys.stderr.isatty():
        logging.disable_progress_bar()


class Where(Protocol):
    """Where a model lies: ``compute`` of params.yaml, or a command line."""

    device: str
    precision: Literal["float32", "bfloat16"]


def playing_dtype(where: Where) -> torch.dtype:
    """Of weights that only play or score. On a CPU float32 in any case: products in bfloat16 are slower there."""
    on_gpu = torch.device(where.device).type == "cuda"
    return torch.bfloat16 if on_gpu and where.precision == "bfloat16" else torch.float32


def load_player(source: str | Path, where: Where, kind: Literal["policy", "prm"] = "policy") -> Checkpoint:
    """A policy or PRM that only plays or scores. One that is trained keeps float32 weights, under autocast."""
    return load_checkpoint(source, kind=kind, device=where.device, dtype=playing_dtype(where))


def slots(
    stage: Stage, policy: Checkpoint, wanted: int, context: int, caches: int = 1, beam: tuple[str, int] = ("", 1)
) -> int:
    """As many of the ``wanted`` slots as fit in ``compute.cache_mb``, shared by ``caches`` models of one size.
    ``beam``: the key of a beam search's width, and the width, below which it cannot search.

    Raises:
        StageError: not one slot fits, or fewer than the beam's width.
    """
    budget = stage.params.compute.cache_mb
    try:
        seats = min(wanted, slots_within(policy.model, context=context, memory_mb=budget / caches))
    except ValueError as error:
        raise StageError(f"params.yaml: compute.cache_mb is {budget}: {error}") from error
    key, width = beam
    if seats < width:
        raise StageError(
            f"params.yaml: compute.cache_mb is {budget}: {caches} caches of {seats} slots of {context} tokens fit, and "
            f"beam search needs {key}, {width}: raise the one or lower the other"
        )
    return seats


def training_settings(stage: Stage, section: Training) -> dict:
    """The keyword arguments that every trainer's settings share, but for :func:`several_processes`."""
    return {
        "optimizer": section.optimizer,
        "learning_rate": section.learning_rate,
        "batch_tokens": section.batch_tokens,
        "accumulation": section.accumulation,
        "save_every": section.save_every,
        "precision": stage.params.compute.precision,
        "gradient_checkpointing": stage.params.compute.gradient_checkpointing,
        "seed": stage.seed,
    }


def several_processes(stage: Stage) -> dict:
    """Those of the trainers that several processes may run."""
    return {"processes": stage.params.compute.processes, "sharding": stage.params.compute.sharding}
