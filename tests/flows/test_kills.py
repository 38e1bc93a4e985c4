"""Thirty SIGKILLs at random moments of small campaigns: each goes on, and ends in the same bytes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.flows.kills import campaigns, ended, locked, small, small_environment


@pytest.mark.timeout(3600)
def test_thirty_kills_leave_no_trace(tmp_path: Path) -> None:
    tally = campaigns(small(tmp_path / "fresh"), 30, 0, 0.7, small_environment())
    assert tally.differing == []
    assert (tally.kills, tally.same_bytes, tally.lost_episodes) == (30, 30, 0)
    assert tally.in_a_stage >= 10, "most kills must meet a stage"


def test_a_kill_while_dvc_writes_its_lock_file_is_no_stage_lost(tmp_path: Path) -> None:
    """The lock file is empty then, and the run cache says which stages ended."""
    folder = small(tmp_path / "fresh")
    subprocess.run(
        [sys.executable, "-m", "dvc", "repro", "-q", "play@1"], cwd=folder, env=small_environment(), check=True
    )
    places = {"play@1": ["data/1"], "play@2": ["data/2"]}
    assert set(locked(folder)) == ended(folder, places) == {"play@1"}
    (folder / "dvc.lock").write_text("")
    assert locked(folder) == {}
    assert ended(folder, places) == {"play@1"}
