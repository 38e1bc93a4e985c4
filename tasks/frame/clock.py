"""Where a stage's wall-clock goes: its own work, and the orchestration around it. With it the watts while it works.

Neither enters the DVC out of a stage, whose bytes must not depend on the clock. They lie in ``.scratch/timings`` beside
it, one file a campaign and stage, from its last run on this machine.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import psutil

from agentprm_core.datasets import atomic_write
from tasks.frame.power import Power

TIMINGS = Path(".scratch/timings")
ORCHESTRATION = ("launch", "tracking", "gates")
"""``launch``: DVC's time between the end of the stage before (or its own start) and the start of this process;
``tracking``: importing and writing to MLflow; ``gates``: importing and running Great Expectations."""


class Clock:
    """Runs from the start of the process. ``with clock.lap("gates"): …`` books time to a name."""

    def __init__(self) -> None:
        self._started = psutil.Process().create_time()
        self._laps: dict[str, float] = {"launch": _launch_seconds(self._started)}
        self._cpu = 0.0
        self._power = Power()

    def working(self) -> AbstractContextManager[None]:
        """``with clock.working(): …`` measures the power that the machine draws."""
        return self._power.watched()

    @contextmanager
    def lap(self, name: str) -> Iterator[None]:
        start, cpu = time.perf_counter(), time.process_time()
        try:
            yield
        finally:
            self.book(name, time.perf_counter() - start)
            self._cpu += time.process_time() - cpu

    def book(self, name: str, seconds: float) -> None:
        """Seconds that were measured elsewhere."""
        self._laps[name] = self._laps.get(name, 0.0) + seconds

    def report(self) -> dict[str, float]:
        """Seconds by name, with ``seconds`` (the whole process and its launch), ``orchestration`` (its share) and
        ``work_cpu_seconds`` (of this process's processors, without orchestration). And where they can be read,
        ``cpu_watts`` and ``gpu_watts``, means over the work."""
        laps = {name: self._laps.get(name, 0.0) for name in ORCHESTRATION}
        others = {name: seconds for name, seconds in self._laps.items() if name not in laps}
        return {
            "seconds": time.time() - self._started + laps["launch"],
            "orchestration": sum(laps.values()),
            "work_cpu_seconds": time.process_time() - self._cpu,
            **laps,
            **others,
            **self._power.watts(),
        }


def write_timing(stage: str, campaign: str, report: dict[str, float]) -> None:
    with atomic_write(TIMINGS / campaign / f"{stage}.json") as aside:
        aside.write_text(json.dumps({**report, "ended": time.time()}, indent=2) + "\n")


def read_timing(stage: str, campaign: str) -> dict[str, float] | None:
    """What :func:`write_timing` wrote, or None for a stage that did not run here in this campaign: its outs came from a
    cache. ``campaign`` is its id (:func:`tasks.frame.tracking.campaign_id`)."""
    path = TIMINGS / campaign / f"{stage}.json"
    return json.loads(path.read_text()) if path.exists() else None


def newest_timing(stage: str) -> dict[str, float] | None:
    """Of the stage's last run here, whichever campaign that was; None where there was none."""
    written = [json.loads(path.read_text()) for path in TIMINGS.glob(f"*/{stage}.json")]
    return max(written, key=lambda timing: timing["ended"], default=None)


def _launch_seconds(started: float) -> float:
    """DVC's share before this process: since the last stage ended, if that was under the same ``dvc`` process."""
    dvc = next((p for p in psutil.Process(os.getpid()).parents() if _is_dvc(p)), None)
    if dvc is None:
        return 0.0
    ends = [json.loads(path.read_text())["ended"] for path in TIMINGS.glob("*/*.json")]
    # a process's start is counted from boot, an end by the wall clock: an end may seem to lie after the next start
    return max(0.0, started - max([dvc.create_time(), *ends]))


def _is_dvc(process: psutil.Process) -> bool:
    return any(Path(word).name == "dvc" for word in process.cmdline()[:4])
