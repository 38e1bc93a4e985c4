"""The GPUs that a stage takes of the server's limit ``gpu``, all at once, for as long as it runs.

A stage tagged ``gpu`` takes as many as ``compute.parallel.processes`` says, where ``compute.device`` is ``cuda``. On
processors there is nothing to share out. A server without the limit does not count.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import yaml
from prefect.client.orchestration import get_client
from prefect.concurrency.sync import concurrency
from prefect.exceptions import ObjectNotFound

from flows.graph import GraphStage

LIMIT = "gpu"


class NotSoMany(RuntimeError):
    """A stage wants more GPUs than the server shares out, and would wait for ever."""


def wanted(stage: GraphStage, root: Path) -> int:
    """How many GPUs the stage takes, by its tags and ``params.yaml`` of ``root``; 0 for none."""
    params = root / "params.yaml"
    if LIMIT not in stage.tags or not params.exists():
        return 0
    compute = yaml.safe_load(params.read_text())["compute"]
    parallel = compute.get("parallel") or {}
    return int(parallel.get("processes", 1)) if compute["device"] == "cuda" else 0


@contextmanager
def taken(stage: GraphStage, root: Path) -> Iterator[None]:
    """Wait until as many are free, and hold them for the block. Raises NotSoMany where there never will be."""
    count = wanted(stage, root)
    if count and (limit := _limit()) is not None and count > limit:
        raise NotSoMany(
            f"stage {stage.name}: compute.parallel.processes is {count}, and the server shares out {limit} GPU: "
            "python -m flows.provision --gpus N"
        )
    with concurrency(LIMIT, occupy=count) if count else nullcontext():
        yield


def _limit() -> int | None:
    with get_client(sync_client=True) as client:
        try:
            return client.read_global_concurrency_limit_by_name(LIMIT).limit
        except ObjectNotFound:
            return None
