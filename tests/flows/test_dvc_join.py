"""The join asks DVC and runs DVC; no Prefect server is needed for that."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import psutil
import pytest
from prefect.states import Failed

from flows import dvc_join
from flows.dvc_join import StageFailed, StageHung, StageRefused, final, is_fresh, reproduce, worth_a_retry
from tests.flows.conftest import processes_in
from tests.waiting import until


def test_a_stage_is_stale_then_fresh(project: Path) -> None:
    assert not is_fresh("seed")
    lines: list[str] = []
    reproduce("seed", lines.append)
    assert "growing data/0.txt" in lines
    assert (project / "data/0.txt").read_text() == "seed\ndata/0.txt"
    assert is_fresh("seed")


def test_a_failing_stage_is_named_with_its_last_lines(project: Path) -> None:
    (project / "faults").write_text("seed")
    with pytest.raises(StageFailed, match=r"(?s)^stage seed failed: dvc repro exited with \d+.*the lines do not grow"):
        reproduce("seed", lambda line: None)
    assert not (project / "data/0.txt").exists()


def test_an_unknown_stage_is_an_error_not_a_fresh_one(project: Path) -> None:
    with pytest.raises(StageFailed, match=r"dvc status sprout: .*sprout"):
        is_fresh("sprout")


def test_a_stage_killed_in_the_middle_leaves_no_half_out_and_runs_again(project: Path) -> None:
    (project / "naps").write_text("seed")
    repro = subprocess.Popen([sys.executable, "-m", "dvc", "repro", "--single-item", "seed"])
    until((project / "data/0.txt.aside").exists, process=repro)
    stages = processes_in(project, running="grow.py")
    psutil.Process(repro.pid).kill()
    stages[0].kill()
    repro.wait()
    assert not (project / "data/0.txt").exists()

    (project / "naps").write_text("")
    assert not is_fresh("seed")
    reproduce("seed", lambda line: None)
    assert (project / "data/0.txt").read_text() == "seed\ndata/0.txt"


class ByHand:
    """A timer that waits for somebody to call ``end``."""

    made: ClassVar[list[ByHand]] = []

    def __init__(self, seconds: float, end: Callable[[], None]) -> None:
        self.seconds, self.end = seconds, end
        self.made.append(self)

    def start(self) -> None: ...

    def cancel(self) -> None:
        self.made.remove(self)


def test_a_hung_stage_is_ended_and_no_process_of_it_remains(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it takes until it hangs."""
    (project / "naps").write_text("seed")
    monkeypatch.setattr(dvc_join, "threading", SimpleNamespace(Event=threading.Event, Timer=ByHand))

    def over(line: str) -> None:
        if line == "napping":
            (timer,) = ByHand.made
            assert timer.seconds == pytest.approx(7200)
            timer.end()

    with pytest.raises(StageHung, match=r"(?s)stage seed was ended: it ran longer than 2 hours.*napping"):
        reproduce("seed", over, hours=2)
    assert ByHand.made == []
    assert processes_in(project) == [] and not (project / "data/0.txt").exists()


@pytest.mark.parametrize(("status", "once"), [(1, True), (2, True), (-9, False), (137, False), (3, False)])
def test_what_a_stage_ends_with_by_itself_is_not_tried_again(status: int, once: bool) -> None:
    said = ["exited with 1 of course", f"ERROR: failed to run: python -m tasks.sft, exited with {status}"]
    assert final(said) is once


@pytest.mark.parametrize(("error", "again"), [(StageRefused, False), (StageFailed, True), (StageHung, True)])
def test_only_what_may_end_otherwise_is_retried(error: type[Exception], again: bool) -> None:
    assert worth_a_retry(None, None, Failed(data=error("ended"))) is again


def test_a_stage_that_refuses_is_told_from_one_that_a_signal_ended(project: Path) -> None:
    (project / "faults").write_text("seed")
    with pytest.raises(StageRefused):
        reproduce("seed", lambda line: None)
    grow = (project / "grow.py").read_text()
    (project / "grow.py").write_text(
        grow.replace("import json, os", "import os, signal; os.kill(os.getpid(), signal.SIGKILL); import json, os")
    )
    with pytest.raises(StageFailed) as failed:
        reproduce("seed", lambda line: None)
    assert not isinstance(failed.value, StageRefused)
