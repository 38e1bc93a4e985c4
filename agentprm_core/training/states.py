"""States that a killed run resumes from: tensors as safetensors, the rest as JSON.

``checkpoint-N`` holds ``process-R.safetensors`` of each process and, written last, ``state.json``. What is trained and
the optimizer's state of it is in that of process 0; of a sharded model each process has its own part. A scratch folder
belongs to one run, whose digest is in ``run.json``.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from agentprm_core.datasets import atomic_write
from agentprm_core.training.processes import Processes

_RUN, _STATE, _KEPT = "run.json", "state.json", 2
_MODEL, _OPTIMIZER, _RNG, _OWN = "model.", "optimizer.", "rng.", "own."


@dataclass(frozen=True)
class Learner:
    """What is trained, and by what."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    processes: Processes
    sharded: bool


def resume_point(scratch: Path, digest: str) -> Path | None:
    """The newest whole state in ``scratch``, if the run of ``digest`` left it; what another run left is removed."""
    scratch.mkdir(parents=True, exist_ok=True)
    owner = scratch / _RUN
    if not owner.exists() or json.loads(owner.read_text())["digest"] != digest:
        for state in scratch.glob("checkpoint-*"):
            shutil.rmtree(state)
        for scores in scratch.glob("scores-*.npy"):
            scores.unlink()
        with atomic_write(owner) as aside:
            aside.write_text(json.dumps({"digest": digest}) + "\n")
        return None
    return max((s for s in scratch.glob("checkpoint-*") if (s / _STATE).exists()), key=step_of, default=None)


def step_of(state: Path) -> int:
    """Optimizer steps that had been taken."""
    return int(state.name.split("-")[1])


def save_state(folder: Path, learner: Learner, said: Mapping, own: Mapping[str, torch.Tensor]) -> None:
    """Write a state; older ones but one go. ``said``: JSON, the same in each process. ``own``: tensors of this one."""
    processes = learner.processes
    if processes.rank == 0:
        shutil.rmtree(folder, ignore_errors=True)  # half written, when a run was killed
        folder.mkdir()
    processes.wait()
    tensors = {_RNG + "cpu": torch.get_rng_state()} | {_OWN + name: tensor for name, tensor in own.items()}
    if processes.device.type == "cuda":
        tensors[_RNG + "cuda"] = torch.cuda.get_rng_state(processes.device)
    if learner.sharded or processes.rank == 0:
        tensors |= _trained(learner)
    save_file({name: _part(tensor).contiguous() for name, tensor in tensors.items()}, _file(folder, processes.rank))
    processes.wait()
    if processes.rank:
        return
    with atomic_write(folder / _STATE) as aside:
        aside.write_text(json.dumps(said))
    for old in sorted(folder.parent.glob("checkpoint-*"), key=step_of)[:-_KEPT]:
        shutil.rmtree(old)


def load_state(folder: Path, learner: Learner) -> tuple[dict, dict[str, torch.Tensor]]:
    """Put back what :func:`save_state` wrote; returns ``said`` and ``own``."""
    processes = learner.processes
    of_process = load_file(_file(folder, processes.rank))
    whole = of_process if learner.sharded or processes.rank == 0 else load_file(_file(folder, 0))
    _put_back(learner, whole)
    torch.set_rng_state(of_process[_RNG + "cpu"])
    if processes.device.type == "cuda":
        torch.cuda.set_rng_state(of_process[_RNG + "cuda"], processes.device)
    own = {name.removeprefix(_OWN): tensor for name, tensor in of_process.items() if name.startswith(_OWN)}
    return json.loads((folder / _STATE).read_text()), own


def _trained(learner: Learner) -> dict[str, torch.Tensor]:
    """What is trained by name, and the optimizer's state by the number of the parameter in its groups."""
    found = {_MODEL + name: p.detach() for name, p in learner.model.named_parameters() if p.requires_grad}
    for number, values in learner.optimizer.state_dict()["state"].items():
        found |= {f"{_OPTIMIZER}{number}.{name}": value for name, value in values.items()}
    return found


@torch.no_grad()
def _put_back(learner: Learner, tensors: Mapping[str, torch.Tensor]) -> None:
    for name, p in learner.model.named_parameters():
        if p.requires_grad:
            _part(p.detach()).copy_(tensors[_MODEL + name])
    optimizer = learner.optimizer
    trained = [p for group in optimizer.param_groups for p in group["params"]]
    state: dict[int, dict[str, torch.Tensor]] = {}
    for key, value in tensors.items():
        if key.startswith(_OPTIMIZER):
            number, name = key.removeprefix(_OPTIMIZER).split(".")
            state.setdefault(int(number), {})[name] = _like(trained[int(number)], value)
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def _part(tensor: torch.Tensor) -> torch.Tensor:
    """This process's part, or the whole."""
    from torch.distributed.tensor import DTensor

    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _like(parameter: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
    """``part``, of a sharded parameter's state, as its shard; a count of steps has none."""
    from torch.distributed.tensor import DTensor

    if not isinstance(parameter, DTensor) or part.ndim == 0:
        return part
    part, shape, stride = part.to(parameter.device), parameter.shape, parameter.stride()
    return DTensor.from_local(part, parameter.device_mesh, parameter.placements, shape=shape, stride=stride)


def _file(folder: Path, rank: int) -> Path:
    return folder / f"process-{rank}.safetensors"
