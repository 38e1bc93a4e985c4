"""The join asks DVC and runs DVC; no Prefect server is needed for that."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from flows.dvc_join import StageFailed, is_fresh, reproduce
from tests.flows.conftest import processes_in


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
    with pytest.raises(StageFailed, match=r"(?s)dvc status sprout exited with \d+.*sprout"):
        is_fresh("sprout")


def test_a_stage_killed_in_the_middle_leaves_no_half_out_and_runs_again(project: Path) -> None:
    (project / "naps").write_text("seed")
    repro = subprocess.Popen([sys.executable, "-m", "dvc", "repro", "--single-item", "seed"])
    while not (stages := [p for p in processes_in(project) if "grow.py" in p.cmdline()]):
        time.sleep(0.05)
    while not (project / "data/0.txt.aside").exists():
        time.sleep(0.05)
    psutil.Process(repro.pid).kill()
    stages[0].kill()
    repro.wait()
    assert not (project / "data/0.txt").exists()

    (project / "naps").write_text("")
    assert not is_fresh("seed")
    reproduce("seed", lambda line: None)
    assert (project / "data/0.txt").read_text() == "seed\ndata/0.txt"
