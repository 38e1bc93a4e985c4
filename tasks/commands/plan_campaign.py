"""The plan that ``agentprm plan`` prints: every stage of a campaign with its memory and hours."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from agentprm_core.errors import DataError
from tasks.commands.plan_stages import Planned, plan_stages, remedy
from tasks.commands.plan_traffic import measured_tflops, memory_here, traffic_of
from tasks.frame.params import PARAMS, read_mapping
from tasks.frame.profile import composed
from tasks.frame.sections import Params

GPU_MEMORY_GB = 80.0
"""Of a GPU that is not here, unless ``--memory`` says otherwise."""


def planned(asked: argparse.Namespace) -> dict:
    """The plan as plain values. ``stages`` are rows of :class:`tasks.commands.plan_stages.Planned`."""
    params = _params(asked.profile)
    processes = params.compute.parallel.processes if params.compute.parallel else 1
    if params.compute.device == "cuda" and processes > asked.gpus:
        raise DataError(f"compute.parallel.processes is {processes}, and --gpus is {asked.gpus}: a process needs a GPU")
    here = memory_here(params.compute.device)
    memory_gb = asked.memory or here or GPU_MEMORY_GB
    stages = plan_stages(params, traffic_of(params))  # first: it is what says that there is no such model
    tflops = asked.tflops or measured_tflops(params.compute)
    rows = [_row(stage, tflops) for stage in stages]
    largest = max(stages, key=lambda stage: stage.memory.total)
    fits = largest.memory.total <= memory_gb * 2**30
    hours = [row["hours"] * row["times"] for row in rows if row["hours"] is not None]
    return {
        "source": params.model.source,
        "device": params.compute.device,
        "memory_gib": memory_gb,
        "memory_assumed": not (asked.memory or here),
        "tflops": tflops,
        "stages": rows,
        "hours": round(sum(hours), 2) if len(hours) == len(rows) else None,
        "fits": fits,
        "said": "" if fits else _refusal(params, largest, memory_gb),
    }


def _params(words: list[str]) -> Params:
    return composed(read_mapping(PARAMS), words, " ".join(words) or PARAMS.name)


def _row(stage: Planned, tflops: float | None) -> dict:
    gib = {name: round(value / 2**30, 4) for name, value in asdict(stage.memory).items()}
    hours = stage.flops / (tflops * 1e12 * stage.efficiency) / 3600 if tflops else None
    return {
        "stage": stage.name,
        "times": stage.times,
        **gib,
        "total": round(stage.memory.total / 2**30, 4),
        "tokens": round(stage.tokens),
        "pflop": round(stage.flops / 1e15, 3),
        "hours": None if hours is None else round(hours, 3),
    }


def _refusal(params: Params, stage: Planned, memory_gb: float) -> str:
    where = "one GPU has" if params.compute.device == "cuda" else "this machine has"
    said = f"{stage.name} needs {stage.memory.total / 2**30:.1f} GiB and {where} {memory_gb:g} GiB"
    return f"{said}: {remedy(params, stage.name, memory_gb)}"
