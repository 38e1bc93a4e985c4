"""The join of Prefect and DVC: one Prefect task a stage, which asks DVC whether the stage is stale and runs it if so.

DVC decides what is stale and writes ``dvc.lock``; this task only starts ``dvc repro --single-item STAGE``, passes its
lines on to the run's log, and sees to it that no process outlives the run (:mod:`flows.leash`). Prefect's own caching
is off: it would be a second opinion about staleness.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from dvc.exceptions import DvcException
from dvc.repo import Repo
from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.logging import get_run_logger
from prefect.states import Completed, State

from flows import gpus
from flows.graph import GraphStage
from flows.leash import leashed, let_go
from flows.mend import mend
from tasks.frame.clock import newest_timing

TAIL_LINES = 20
"""Lines of a failed stage's output that its error repeats."""


HOURS = 24.0
"""How long a stage may run unless a flow is told otherwise."""
_EXITED = re.compile(r"exited with (-?\d+)")
"""What DVC says of a stage's command that failed."""
_ASKING = threading.Lock()
"""DVC is not made for threads; a process of its own would take a second to start."""
_RUNNING: set[subprocess.Popen[str]] = set()


class StageFailed(RuntimeError):
    """A stage ended with a non-zero status, or DVC could not run it. Says which, and ends with what it said last."""


class StageRefused(StageFailed):
    """The stage itself ended with status 1 or 2: its data or parameters cannot be used, or its code has a fault. The
    same again would end the same way."""


class StageHung(StageFailed):
    """The stage did not end in the time that it was given, and was ended."""


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
    work_seconds: float | None = None
    """Of these the stage's own work; None where it did not say."""


def dvc_command(*arguments: str) -> list[str]:
    """DVC of this very environment, patient with another DVC command that holds the project's lock for a moment."""
    return [sys.executable, "-m", "dvc", "--wait-for-lock", *arguments]


def stage_environment() -> dict[str, str]:
    """The environment stages run in: this one, ``python`` meaning this interpreter, and lines shown as they come."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {**os.environ, "PATH": path, "PYTHONUNBUFFERED": "1"}


def is_fresh(stage: str) -> bool:
    """Whether DVC holds ``stage`` for up to date. Raises StageFailed with DVC's words when it cannot say."""
    with _ASKING:
        try:
            with Repo(_wait_for_lock=True) as repo:
                return not repo.status(targets=[stage])
        except DvcException as error:
            raise StageFailed(f"dvc status {stage}: {error}") from error


def reproduce(
    stage: str, log: Callable[[str], object], hours: float = HOURS, *options: str, lock: int | None = None
) -> list[str]:
    """Run ``dvc repro --single-item stage`` with DVC's ``options``, each line of it to ``log``, for at most ``hours``.

    ``lock`` is an open file that stays locked until no process of the stage is left. Returns the last lines.

    Raises StageRefused, StageHung or, where a signal ended the stage or DVC itself failed, StageFailed: each with the
    last lines.
    """
    tail: deque[str] = deque(maxlen=TAIL_LINES)
    command = dvc_command("repro", "--single-item", *options, stage)
    with leashed(command, env=stage_environment(), stdout=subprocess.PIPE, lock=lock) as running:
        _RUNNING.add(running)
        hung = threading.Event()

        def end() -> None:
            hung.set()
            running.terminate()  # the leash ends the tree, and with it the lines below

        limit = threading.Timer(3600 * hours, end)
        limit.daemon = True
        limit.start()
        try:
            for line in running.stdout:
                if line := line.rstrip():
                    log(line)
                    tail.append(line)
            code = running.wait()
        finally:
            limit.cancel()
            _RUNNING.discard(running)
    said = "Its last lines:\n" + "\n".join(tail)
    if hung.is_set():
        raise StageHung(f"stage {stage} was ended: it ran longer than {hours:g} hours. {said}")
    if code != 0:
        kind = StageRefused if final(tail) else StageFailed
        raise kind(f"stage {stage} failed: dvc repro exited with {code}. {said}")
    return list(tail)


def work_seconds(stage: str, since: float) -> float | None:
    """Of the stage's run here after ``since`` (seconds of the wall clock), without orchestration; None where it has not
    said."""
    timing = newest_timing(stage)
    ran = timing is not None and timing["ended"] >= since
    return timing["seconds"] - timing["orchestration"] if ran else None


def end_all() -> None:
    """Let go of every stage that runs in a thread of this process; each thread then raises StageFailed."""
    for running in list(_RUNNING):
        let_go(running)


def final(lines: Iterable[str]) -> bool:
    """Whether DVC's last lines say that the stage's command ended by itself, with status 1 or 2. A signal gives a
    negative status, or one above 128."""
    statuses = [int(status) for line in lines for status in _EXITED.findall(line)]
    return bool(statuses) and statuses[-1] in (1, 2)


def worth_a_retry(task: object, run: object, state: State) -> bool:
    """Prefect asks before each retry: not where the same again would end the same way."""
    ended = state.result(raise_on_failure=False)
    return not isinstance(ended, (StageRefused, gpus.NotSoMany))


@task(task_run_name="{stage.name}", cache_policy=NO_CACHE, persist_result=False, retry_condition_fn=worth_a_retry)
def run_stage(stage: GraphStage, hours: float = HOURS) -> State[StageRun]:
    """Bring one stage up to date, in at most ``hours``. The state is named ``UpToDate`` when there was nothing to do.

    Raises StageFailed, naming the stage and repeating the end of its output.
    """
    log = get_run_logger()
    start, begun = time.monotonic(), time.time()
    for line in mend(Path.cwd()):
        log.warning(line)
    fresh = is_fresh(stage.name)
    asked = time.monotonic()
    if fresh:
        outcome = "UpToDate"
        message = "nothing to do"
    else:
        with gpus.taken(stage, Path.cwd()):
            reproduce(stage.name, log.info, hours)
        outcome = "Completed"
        message = f"ran in {time.monotonic() - asked:.1f} s"
    run = StageRun(
        stage=stage.name,
        outcome=outcome,
        status_seconds=asked - start,
        repro_seconds=0.0 if fresh else time.monotonic() - asked,
        work_seconds=None if fresh else work_seconds(stage.name, begun),
    )
    return Completed(name=outcome, message=message, data=run)
