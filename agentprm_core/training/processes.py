"""The processes that train together: one, or those of the launcher this one runs under (``torchrun``)."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel


@dataclass(frozen=True)
class Processes:
    rank: int
    count: int
    device: torch.device

    @classmethod
    def joined(cls, device: torch.device) -> Processes:
        """Those that train on devices like ``device``, which is this one's. Waits for the others, where there are."""
        if not distributed.is_initialized():
            if int(os.environ.get("WORLD_SIZE", "1")) == 1:
                return cls(0, 1, device)
            distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
        return cls(distributed.get_rank(), distributed.get_world_size(), device)

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """Over all processes, each of which calls this."""
        if self.count > 1:
            values = values.to(self.device, copy=True)
            distributed.all_reduce(values)
        return values

    def wait(self) -> None:
        """Until all have come here."""
        self.sum(torch.zeros(1)).cpu()  # what waits for a GPU: a barrier of NCCL returns when it is queued

    def share(self, model: nn.Module) -> nn.Module:
        """``model`` with its gradients averaged over the processes."""
        if self.count == 1:
            return model
        return DistributedDataParallel(model, device_ids=[self.device.index] if self.device.type == "cuda" else None)
