"""The join of Prefect and DVC: one Prefect task a stage, which asks DVC whether the stage is stale and runs it if so.

DVC decides what is stale and writes ``dvc.lock``; this task only starts ``dvc repro --single-item STAGE``, passes its
lines on to the run's log, and sees to it that no process outlives the run (:mod:`flows.leash`). Prefect's own caching
is off: it would be a second opinion about staleness.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.logging import get_run_logger
from prefect.states import Completed, State

from flows.graph import GraphStage
from flows.leash import leashed

TAIL_LINES = 20
"""Lines of a failed stage's output that its error repeats."""


class StageFailed(RuntimeError):
    """A stage ended with a non-zero status, or DVC could not run it. Says which, and ends with what it said last."""


@dataclass(frozen=True, slots=True)
class StageRun:
    """What became of one stage in one flow run."""

    stage: str
    outcome: str
    """``UpToDate`` or ``Completed``."""
    status_seconds: float
    """Asking DVC whether it was stale."""
    repro_seconds: float
    """``dvc repro`` from start to end, DVC's own share included; 0 for a fresh stage."""


def dvc_command(*arguments: str) -> list[str]:
    """DVC of this very environment, patient with another DVC command that holds the project's lock for a moment."""
    return [sys.executable, "-m", "dvc", "--wait-for-lock", *arguments]


def stage_environment() -> dict[str, str]:
    """The environment stages run in: this one, ``python`` meaning this interpreter, and lines shown as they come."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {**os.environ, "PATH": path, "PYTHONUNBUFFERED": "1"}


def is_fresh(stage: str) -> bool:
    """Whether DVC holds ``stage`` for up to date. Raises StageFailed with DVC's words when it cannot say."""
    asked = subprocess.run(
        dvc_command("status", "--json", stage), capture_output=True, text=True, env=stage_environment(), check=False
    )
    if asked.returncode != 0:
        raise StageFailed(f"dvc status {stage} exited with {asked.returncode}:\n{asked.stderr.strip()}")
    return not json.loads(asked.stdout)


def reproduce(stage: str, log: Callable[[str], object]) -> None:
    """Run ``dvc repro --single-item stage``, each line of it to ``log``. Raises StageFailed with the last lines."""
    tail: deque[str] = deque(maxlen=TAIL_LINES)
    command = dvc_command("repro", "--single-item", stage)
    with leashed(command, env=stage_environment(), stdout=subprocess.PIPE) as running:
        for line in running.stdout:
            if line := line.rstrip():
                log(line)
                tail.append(line)
        code = running.wait()
    if code != 0:
        raise StageFailed(f"stage {stage} failed: dvc repro exited with {code}. Its last lines:\n" + "\n".join(tail))


@task(task_run_name="{stage.name}", cache_policy=NO_CACHE, persist_result=False)
def run_stage(stage: GraphStage) -> State[StageRun]:
    """Bring one stage up to date. The state is named ``UpToDate`` when there was nothing to do.

    Raises StageFailed, naming the stage and repeating the end of its output.
    """
    log = get_run_logger()
    start = time.monotonic()
    fresh = is_fresh(stage.name)
    asked = time.monotonic()
    if fresh:
        outcome = "UpToDate"
        message = "nothing to do"
    else:
        reproduce(stage.name, log.info)
        outcome = "Completed"
        message = f"ran in {time.monotonic() - asked:.1f} s"
    run = StageRun(
        stage=stage.name,
        outcome=outcome,
        status_seconds=asked - start,
        repro_seconds=0.0 if fresh else time.monotonic() - asked,
    )
    return Completed(name=outcome, message=message, data=run)
