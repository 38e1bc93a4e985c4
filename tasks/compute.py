"""What the machine is asked for: device, threads, precision, and the part of every trainer's settings that is ours."""

from __future__ import annotations

import sys

import torch
from transformers.utils import logging

from agentprm_core.policy.models import Policy
from agentprm_core.policy.runner import slots_within
from tasks.params import Compute, Training
from tasks.stage import Stage, StageError


def use(compute: Compute) -> None:
    """Set torch's threads; raises StageError where the device is not there."""
    if compute.device == "cuda" and not torch.cuda.is_available():
        raise StageError("params.yaml: compute.device is 'cuda', and torch sees no GPU here (CUDA_VISIBLE_DEVICES?)")
    torch.set_num_threads(compute.threads)
    quiet()


def quiet() -> None:
    """No progress bars of transformers' own where nobody watches."""
    if not sys.stderr.isatty():
        logging.disable_progress_bar()


def slots(stage: Stage, policy: Policy, wanted: int, context: int, caches: int = 1) -> int:
    """As many of the ``wanted`` slots as fit in ``compute.cache_mb``, shared by ``caches`` models of one size.

    Raises:
        StageError: not one slot fits.
    """
    budget = stage.params.compute.cache_mb
    try:
        return min(wanted, slots_within(policy.model, context=context, memory_mb=budget / caches))
    except ValueError as error:
        raise StageError(f"params.yaml: compute.cache_mb is {budget}: {error}") from error


def training_settings(stage: Stage, section: Training) -> dict:
    """The keyword arguments that every trainer's settings share."""
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
