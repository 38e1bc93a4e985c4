"""How long and how fast to learn: what every trainer's settings share."""

from __future__ import annotations

import math
from dataclasses import dataclass

PRECISIONS = ("float32", "bfloat16")
OPTIMIZERS = ("adamw", "muon")
SHARDINGS = ("none", "fsdp2")
MAX_GRAD_NORM = 1.0
"""Longer gradients are scaled down to it."""


@dataclass(frozen=True)
class TrainSettings:
    """How long and how fast to learn. Every trainer's settings extend these."""

    learning_rate: float
    batch_tokens: int
    """Tokens of one forward pass of one process."""
    seed: int
    epochs: float | None = None
    steps: int | None = None
    """Optimizer steps. Exactly one of ``epochs`` and ``steps`` is given."""
    warmup: float = 0.05
    """Share of the steps over which the learning rate rises from 0. It falls to 0 as half a cosine from there."""
    optimizer: str = "adamw"
    """``muon``: :class:`agentprm_core.training.muon.MuonWithAdamW`, for models trained from scratch."""
    accumulation: int = 1
    precision: str = "float32"
    gradient_checkpointing: bool = False
    compiled: bool = False
    """Layers run through ``torch.compile``: the first step waits for it, and on a GPU those after are faster."""
    save_every: int = 0
    """Steps between states that a killed run resumes from; 0 keeps none."""
    processes: int = 1
    """That share the batches of a step, started by :func:`agentprm_core.training.launch.fit`. 1 also for a script that
    runs under a launcher itself: there each process accumulates ``accumulation`` batches."""
    sharding: str = "none"
    """``fsdp2``: the processes share parameters, gradients and optimizer state, too. For a script that runs under a
    launcher itself: :func:`agentprm_core.training.sharding.shard` on the model it hands over."""
    mixing: float = 1.0
    """α of (1 − α) θ_start + α θ_trained, the weights that :func:`agentprm_core.training.launch.fit` leaves (WiSE-FT,
    arXiv 2109.01903, eq. 1). Of an adapter its factors are mixed."""

    def __post_init__(self) -> None:
        if (self.epochs is None) == (self.steps is None):
            raise ValueError(f"give epochs or steps, one of them: epochs={self.epochs}, steps={self.steps}")
        if self.optimizer not in OPTIMIZERS:
            raise ValueError(f"optimizer: {self.optimizer!r} is not one of {', '.join(OPTIMIZERS)}")
        if self.precision not in PRECISIONS:
            raise ValueError(f"precision: {self.precision!r} is not one of {', '.join(PRECISIONS)}")
        if self.accumulation % self.processes:
            raise ValueError(f"accumulation: {self.accumulation} is not a multiple of processes, {self.processes}")
        if not 0 < self.mixing <= 1:
            raise ValueError(f"mixing: {self.mixing} is not in (0, 1]")
        if self.sharding not in SHARDINGS:
            raise ValueError(f"sharding: {self.sharding!r} is not one of {', '.join(SHARDINGS)}")
        if self.sharding != "none" and self.processes == 1:
            raise ValueError(f"sharding: {self.sharding} is among processes, and there is 1: raise it, or set none")
        if self.sharding != "none" and self.optimizer == "muon":
            raise ValueError(f"optimizer: muon needs whole matrices: set adamw, or sharding none for {self.sharding}")


def rate_factor(step: int, steps: int, warmup: float) -> float:
    """Of the learning rate in ``step`` (from 0): rises linearly over the share ``warmup`` of ``steps``, then falls as
    half a cosine. An only step has the whole rate."""
    rising = min(math.ceil(warmup * steps), steps - 1)
    if step < rising:
        return step / rising
    return 0.5 * (1 + math.cos(math.pi * (step - rising) / max(1, steps - rising)))


def step_arguments(settings: TrainSettings) -> dict:
    """What an optimizer step is, as keyword arguments of TRL's trainers."""
    return {
        "learning_rate": settings.learning_rate,
        "gradient_accumulation_steps": settings.accumulation,
        "lr_scheduler_type": "cosine",
        "warmup_steps": settings.warmup,
        "max_grad_norm": MAX_GRAD_NORM,
        "bf16": settings.precision == "bfloat16",
    }
