"""An S3 store as the DVC remote of several hosts: what it holds, and what one reads when it refuses."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.mirror import mirror
from flows.remote import Remote
from flows.snapshot import SnapshotError, git
from flows.worker_stage import run_on_worker
from tests.flows.team import Store
from tests.flows.test_workers import clone, hub  # noqa: F401  (a fixture)

pytestmark = [pytest.mark.usefixtures("prefect_server"), pytest.mark.xdist_group("prefect")]


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    store = Store(tmp_path_factory.mktemp("s3"))
    yield store
    store.close()


@pytest.fixture
def store(started: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Empty, with its key in the environment."""
    for name, value in started.variables().items():
        monkeypatch.setenv(name, value)
    for name in started.names():
        started.client().delete_object(Bucket="dvc", Key=name)
    return started


@pytest.fixture
def asked(hub: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, str]:  # noqa: F811
    """A checkout whose remote is the store, as the current folder, and the commit of campaign ``one``."""
    commit = git(hub, "rev-parse", "main")
    git(hub, "branch", "campaign/one", commit)
    folder = clone(hub, hub.parent / "first", "s3://dvc")
    monkeypatch.chdir(folder)
    return folder, commit


def test_a_stage_leaves_its_outs_there_and_a_second_host_reads_them(asked, hub, store, monkeypatch) -> None:  # noqa: F811
    _, commit = asked
    assert run_on_worker("one", commit, "seed", return_state=True).is_completed()
    assert list(store.objects("files/md5").values()) == [b"seed\ndata/0.txt"]
    assert store.names("runs"), "the run cache is there too"
    monkeypatch.chdir(clone(hub, hub.parent / "second", "s3://dvc"))
    assert run_on_worker("one", commit, "seed", return_state=True).is_completed()
    assert len(store.names("files/md5")) == 1


def test_portions_go_there_come_back_and_go(asked, store) -> None:
    folder, _ = asked
    scratch = folder / ".scratch/grow@1"
    scratch.mkdir(parents=True)
    (scratch / "00000.parquet").write_bytes(b"half the work")
    one = mirror(Remote(folder), "one", "grow@1", scratch)
    assert one.copy() == 1
    (scratch / "00001.parquet").write_bytes(b"the other half")
    assert (one.copy(), one.copy()) == (1, 0)
    assert store.objects("campaigns") == {
        "campaigns/one/grow@1/00000.parquet": b"half the work",
        "campaigns/one/grow@1/00001.parquet": b"the other half",
    }
    other = mirror(Remote(folder), "one", "grow@1", folder / "elsewhere")
    assert other.fetch() == 2
    assert (folder / "elsewhere/00001.parquet").read_bytes() == b"the other half"
    (scratch / "00002.parquet").write_bytes(b"after the other host had looked")
    one.copy()
    assert other.fetch() == 1
    other.clear()
    assert store.names("campaigns") == []


def test_a_store_without_room_says_so_and_the_work_is_kept(asked, store) -> None:
    folder, commit = asked
    store.fill()
    try:
        with pytest.raises(SnapshotError, match=r"what seed wrote cannot be pushed: .*QuotaExceeded.*run the campaign"):
            run_on_worker("one", commit, "seed")
        assert store.names("files") == []
    finally:
        store.fill(False)
    (folder / ".scratch/campaigns/one/seed/seed.txt").unlink()  # what lies in the worktree is not what is used
    assert run_on_worker("one", commit, "seed", return_state=True).is_completed()
    assert list(store.objects("files/md5").values()) == [b"seed\ndata/0.txt"]


def test_a_wrong_key_says_so_before_anything_runs(asked, store, monkeypatch) -> None:
    folder, commit = asked
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of somebody else")
    with pytest.raises(SnapshotError, match=r"what grow@1 needs cannot be pulled: .*[Ff]orbidden"):
        run_on_worker("one", commit, "grow@1")
    assert not list(folder.rglob("portion.txt"))


def test_a_store_that_is_away_says_where_it_was_looked_for(asked, store, monkeypatch) -> None:
    _, commit = asked
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(SnapshotError, match=r'cannot be pulled: Could not connect to the endpoint URL: "http://127'):
        run_on_worker("one", commit, "grow@1")


def test_a_worker_with_other_code_runs_that_of_the_snapshot(asked, store) -> None:
    folder, commit = asked
    program = folder / "grow.py"
    program.write_text(program.read_text().replace("open(source).read() + out", "'of this checkout'"))
    subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qam", "other"], check=True)
    assert run_on_worker("one", commit, "seed", return_state=True).is_completed()
    assert list(store.objects("files/md5").values()) == [b"seed\ndata/0.txt"]
