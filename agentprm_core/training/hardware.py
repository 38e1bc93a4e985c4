"""How this machine trains, whatever is trained: the part of every trainer's settings that is not the method's."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Hardware:
    """Decided once a campaign. A method adds its learning rate, and tokens an optimizer step."""

    optimizer: str
    """``adamw`` or ``muon`` (for models trained from scratch)."""
    precision: str
    """``float32`` or ``bfloat16``."""
    pass_tokens: int
    """The most tokens of one forward pass of one process."""
    save_every: int
    """Optimizer steps between states that a killed run resumes from; 0 keeps none."""
    processes: int = 1
    """That share the batches of a step."""
    sharding: str = "none"
    gradient_checkpointing: bool = False

    def settings(self, *, learning_rate: float, batch_tokens: int, seed: int, alone: bool = False) -> dict[str, Any]:
        """Keyword arguments of :class:`agentprm_core.training.trainer.TrainSettings`.

        ``batch_tokens`` are those of an optimizer step. A step is as many passes as ``pass_tokens`` make necessary, and
        a multiple of the processes. ``alone``: a training that cannot be shared runs in one process.
        """
        processes, sharding = (1, "none") if alone else (self.processes, self.sharding)
        passes = math.ceil(batch_tokens / self.pass_tokens / processes) * processes
        return {
            "optimizer": self.optimizer,
            "learning_rate": learning_rate,
            "batch_tokens": batch_tokens // passes,
            "accumulation": passes,
            "save_every": self.save_every,
            "precision": self.precision,
            "gradient_checkpointing": self.gradient_checkpointing,
            "seed": seed,
            "processes": processes,
            "sharding": sharding,
        }
