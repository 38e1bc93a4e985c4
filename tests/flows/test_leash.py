"""A command on a leash reports its own status, and nothing of it outlives the holder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from flows.leash import leashed
from tests.flows.conftest import ROOT, processes_in
from tests.waiting import until


@pytest.mark.parametrize(("command", "status"), [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 128 + 9)])
def test_status_and_lines_are_the_commands(command: str, status: int) -> None:
    with leashed(["sh", "-c", f"echo one; echo two >&2; {command}"], dict(os.environ), subprocess.PIPE) as running:
        assert running.stdout.read() == "one\ntwo\n"
        assert running.wait() == status


def test_leaving_the_block_ends_the_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(KeyError), leashed(["sh", "-c", "setsid sleep 600 & sleep 600"], dict(os.environ)):
        until(lambda: len(processes_in(tmp_path)) >= 4)  # leash, sh, two sleeps, of which one left the group
        raise KeyError
    assert processes_in(tmp_path) == []


def test_a_holder_killed_without_warning_takes_the_tree_along(tmp_path: Path) -> None:
    holder = (
        "import os, time\nfrom flows.leash import leashed\n"
        "with leashed(['sh', '-c', 'sleep 600 & sleep 600'], dict(os.environ)): time.sleep(600)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", holder], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    until(lambda: len(processes_in(tmp_path)) >= 5, process=process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    until(lambda: not processes_in(tmp_path))


@pytest.mark.slow
def test_one_that_will_not_go_is_killed_after_the_grace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with leashed(["sh", "-c", "trap '' TERM; touch deaf; while true; do sleep 0.1; done"], dict(os.environ)):
        until((tmp_path / "deaf").exists)
    assert processes_in(tmp_path) == []
