"""What a killed DVC leaves behind: it does not get over it by itself, and goes on after flows.mend."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from flows.dvc_join import StageFailed, is_fresh, reproduce
from flows.mend import mend


def test_an_entry_of_the_run_cache_that_was_not_written(project: Path) -> None:
    reproduce("seed", print)
    (entry,) = (path for path in (project / ".dvc/cache/runs").glob("*/*/*"))
    entry.unlink()
    (project / "dvc.lock").unlink()
    with pytest.raises(StageFailed, match="failed to reproduce 'seed'"):
        reproduce("seed", print)
    assert "DVC was killed before it wrote" in mend(project)[0]
    reproduce("seed", print)
    assert is_fresh("seed")
    assert mend(project) == []


def test_a_list_of_locks_cut_short(project: Path) -> None:
    (project / ".dvc/tmp/rwlock").write_text('{"read": {')
    with pytest.raises(StageFailed, match="Unable to read RWLock-file"):
        reproduce("seed", print)
    assert "killed while it wrote it" in mend(project)[0]
    reproduce("seed", print)


@pytest.mark.parametrize("left", ["schema: '2.0'\nstages:\n  seed:\n    cm", "md5: 0123", "md5:", "hash: md5\n", ""])
def test_a_lock_file_cut_short(project: Path, left: str) -> None:
    reproduce("seed", print)
    whole = (project / "dvc.lock").read_text()
    kept = left if left.startswith("schema") else whole[: whole.rindex("md5: ")] + left if left else ""
    (project / "dvc.lock").write_text(kept.replace("hash: md5\n", "") if left == "" else kept)
    assert "comes back from the cache" in mend(project)[0]
    said: list[str] = []
    reproduce("seed", said.append)
    assert any("is cached - skipping run" in line for line in said)
    assert (project / "dvc.lock").read_text() == whole
    assert mend(project) == []


def test_it_is_a_command(project: Path) -> None:
    (project / ".dvc/tmp/rwlock").write_text("")
    done = subprocess.run([sys.executable, "-m", "flows.mend"], capture_output=True, text=True, check=True)
    assert "rwlock: DVC was killed" in done.stderr


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("flows.mend", "no DVC project here: run this where dvc.yaml is\n"),
        ("flows.summary", "params.yaml: no such file; run this where dvc.yaml is\n"),
    ],
)
def test_a_folder_that_is_no_campaign_is_one_line(tmp_path: Path, program: str, said: str) -> None:
    ran = subprocess.run([sys.executable, "-m", program], cwd=tmp_path, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (1, said)
