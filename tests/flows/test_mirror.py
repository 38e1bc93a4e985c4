"""Portions and training states, from one worker's scratch to another's."""

from __future__ import annotations

from pathlib import Path

import pytest
from dvc.fs import LocalFileSystem
from dvc.repo import Repo

from flows.mirror import Mirror, mirror
from flows.remote import Remote
from flows.snapshot import SnapshotError
from tests.waiting import until


def state(scratch: Path, step: int, whole: bool = True) -> None:
    folder = scratch / "training" / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    (folder / "process-0.safetensors").write_text(f"tensors {step}")
    if whole:
        (folder / "state.json").write_text("{}")


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def ends(tmp_path: Path) -> tuple[Mirror, Mirror]:
    """Of two workers."""
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    return tuple(Mirror(tmp_path / name, LocalFileSystem(), str(tmp_path / "remote/a")) for name in ("here", "there"))


def test_another_worker_gets_portions_and_states(ends) -> None:
    here, there = ends
    assert there.fetch() == 0
    (here.scratch / "abc").mkdir()
    (here.scratch / "abc/00000.parquet").write_text("portion")
    (here.scratch / "abc/.00001.parquet.x").mkdir()
    (here.scratch / "abc/.00001.parquet.x/00001.parquet").write_text("hal")
    state(here.scratch, 200)
    assert here.copy() == 3
    assert here.copy() == 0
    assert there.fetch() == 3
    found = {"abc/00000.parquet", "training/checkpoint-200/process-0.safetensors", "training/checkpoint-200/state.json"}
    assert names(there.scratch) == found
    assert there.fetch() == 0
    assert there.copy() == 0


def test_what_changed_is_copied_again_and_what_went_goes(ends) -> None:
    here, there = ends
    state(here.scratch, 200)
    state(here.scratch, 400, whole=False)
    here.copy()
    (here.scratch / "training/checkpoint-400/process-0.safetensors").write_text("all the tensors")
    (here.scratch / "training/checkpoint-400/state.json").write_text("{}")
    for path in (here.scratch / "training/checkpoint-200").iterdir():
        path.unlink()
    assert here.copy() == 2
    there.fetch()
    assert names(there.scratch) == {f"training/checkpoint-400/{n}" for n in ("process-0.safetensors", "state.json")}
    assert (there.scratch / "training/checkpoint-400/process-0.safetensors").read_text() == "all the tensors"
    here.clear()
    assert there.fetch() == 0


def test_a_state_that_goes_away_while_it_is_fetched_is_not_whole(ends, tmp_path: Path) -> None:
    here, there = ends
    state(here.scratch, 200)
    here.copy()
    get = there._fs.get_file

    def gone(path: str, to: str) -> None:
        if path.endswith("safetensors"):
            raise FileNotFoundError(path)
        get(path, to)

    there._fs.get_file = gone
    assert there.fetch() == 0


def test_what_is_here_already_is_kept_and_copied(ends) -> None:
    here, there = ends
    (here.scratch / "a").write_text("of here")
    here.copy()
    (there.scratch / "a").write_text("of there")
    (there.scratch / "b").write_text("b")
    assert there.fetch() == 0
    there.copy()
    assert here.fetch() == 1
    assert (here.scratch / "b").read_text() == "b"


def test_it_copies_while_a_stage_runs_and_at_its_end(ends) -> None:
    here, there = ends
    with here.watching(print, seconds=0.05):
        (here.scratch / "a").write_text("a")
        until(there.fetch)
        (here.scratch / "b").write_text("b")
    assert there.fetch() == 1


def test_a_remote_that_is_away_is_said_once_and_ends_nothing(ends, monkeypatch: pytest.MonkeyPatch) -> None:
    here, _ = ends
    said: list[str] = []
    tries = []

    def copy() -> None:
        tries.append(1)
        raise OSError("no space left")

    monkeypatch.setattr(here, "copy", copy)
    with here.watching(said.append, seconds=0.01):
        until(lambda: len(tries) >= 3)
    assert said == ["portions are not copied to the remote: no space left"]


def test_it_lies_beside_the_data_of_the_default_remote(project: Path, tmp_path_factory) -> None:
    store = tmp_path_factory.mktemp("store")
    with pytest.raises(SnapshotError, match="needs a DVC remote"):
        mirror(Remote(project), "one", "seed", project / ".scratch/seed")
    with Repo(str(project)) as repo, repo.config.edit("local") as config:
        config["remote"] = {"store": {"url": str(store)}}
        config["core"] = {"remote": "store"}
    (project / ".scratch/seed").mkdir(parents=True)
    (project / ".scratch/seed/a").write_text("a")
    mirror(Remote(project), "one", "seed", project / ".scratch/seed").copy()
    assert names(store) == {"campaigns/one/seed/a"}
