"""A campaign on two checkouts with caches of their own, both of whose workers are killed: the bytes of one machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pytest
import yaml
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterName
from prefect.settings import get_current_settings
from prefect.states import Crashed

from flows.checkout import CHECKOUT
from flows.provision import CPU_POOL, deploy, provision
from flows.snapshot import SnapshotError, git
from flows.worker_stage import run_on_worker
from tests.flows.conftest import ROOT
from tests.waiting import until

pytestmark = [pytest.mark.usefixtures("prefect_server"), pytest.mark.xdist_group("prefect")]


def clone(hub: Path, folder: Path, store: Path | str | None = None) -> Path:
    """A checkout as another machine has it."""
    subprocess.run(["git", "clone", "-q", str(hub), str(folder)], check=True)
    (folder / "flows").symlink_to(ROOT / "flows")
    (folder / ".git/info/exclude").write_text("flows\n")
    if store is not None:
        command = [sys.executable, "-m", "dvc", "remote", "add", "-q", "--local", "--default", "store", str(store)]
        subprocess.run(command, cwd=folder, check=True)
    return folder


@pytest.fixture
def hub(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Git remote; the toy's stages ``grow@1`` and ``grow@2`` sleep after a portion."""
    (project / "naps").write_text("grow@1 grow@2")
    git(project, "commit", "-q", "-a", "-m", "two stages that sleep")
    hub = tmp_path_factory.mktemp("hosts") / "hub.git"
    subprocess.run(["git", "clone", "-q", "--bare", str(project), str(hub)], check=True)
    return hub


class Worker:
    """A Prefect worker in a checkout, which can be killed with all that it runs, as a host that disappears."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", CPU_POOL, "--limit", "1"]
        env = {**os.environ, CHECKOUT: str(folder), "PREFECT_API_URL": get_current_settings().api.url}
        with (folder / ".git/worker.log").open("a") as log:
            self.process = subprocess.Popen(command, env=env, stdout=log, stderr=log)

    def kill(self) -> None:
        with suppress(psutil.NoSuchProcess):
            tree = [psutil.Process(self.process.pid), *psutil.Process(self.process.pid).children(recursive=True)]
            for process in tree:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        self.process.wait()


def runs_of(stage: str, campaign: str) -> list:
    with get_client(sync_client=True) as client:
        named = FlowRunFilter(name=FlowRunFilterName(any_=[f"{stage} of {campaign}"]))
        return client.read_flow_runs(flow_run_filter=named)


def declare_lost(stage: str, campaign: str) -> None:
    """What the automation does when heartbeats stay away for minutes."""
    with get_client(sync_client=True) as client:
        for run in runs_of(stage, campaign):
            if run.state is not None and run.state.is_running():
                client.set_flow_run_state(run.id, Crashed(message="No heartbeat"), force=True)


@pytest.fixture
def ended() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.slow
def test_both_workers_are_killed_and_the_bytes_are_those_of_one_machine(
    hub: Path, ended: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = hub.parent
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PREFECT_API_URL", get_current_settings().api.url)
    provision()
    deploy()
    first, second = (clone(hub, hosts / name, hosts / "store") for name in ("first", "second"))
    workers = [Worker(first), Worker(second)]
    for worker in workers:
        ended.callback(worker.kill)
    log = hosts / "campaign.log"
    with log.open("w") as out:
        command = [sys.executable, "-m", "flows.campaign", "--workers", "--name", "both"]
        campaign = subprocess.Popen(command, cwd=first, stdout=out, stderr=out)
    ended.callback(campaign.kill)

    for stage in ("grow@1", "grow@2"):
        portion = hosts / "store/campaigns/both" / stage / "portion.txt"
        until(portion.exists, 240, log.read_text)
        held = next(w for w in workers if (w.folder / ".scratch/campaigns/both" / stage.replace("@", "-")).exists()
                    and w.process.poll() is None)  # fmt: skip
        held.kill()
        workers.remove(held)
        if not workers:  # the other one was killed before: its host is back
            workers.append(Worker(next(folder for folder in (first, second) if folder != held.folder)))
            ended.callback(workers[0].kill)
        declare_lost(stage, "both")
    assert campaign.wait(timeout=400) == 0, log.read_text()

    alone = clone(hub, hosts / "alone")
    (alone / "naps").write_text("")
    subprocess.run([sys.executable, "-m", "dvc", "repro", "-q"], cwd=alone, check=True)
    locked = yaml.safe_load(git(hub, "show", "campaign/both:dvc.lock"))
    assert locked == yaml.safe_load((alone / "dvc.lock").read_text())
    outs = {out["md5"] for stage in locked["stages"].values() for out in stage["outs"]}
    for md5 in outs:
        stored = hosts / "store/files/md5" / md5[:2] / md5[2:]
        assert stored.read_bytes() == (alone / ".dvc/cache/files/md5" / md5[:2] / md5[2:]).read_bytes()
    assert [run.state.name for run in runs_of("seed", "both")] == ["Completed"]
    assert sorted(run.state.name for run in runs_of("grow@1", "both")) == ["Completed", "Crashed"]
    assert not list((hosts / "store/campaigns").rglob("*.txt")), "nothing is left to go on from"


def test_a_stage_is_handed_back_and_a_second_worker_harms_nothing(hub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = hub.parent
    commit = git(hub, "rev-parse", "main")
    git(hub, "branch", "campaign/one", commit)
    for name in ("first", "second"):
        monkeypatch.chdir(clone(hub, hosts / name, hosts / "store"))
        assert run_on_worker("one", commit, "seed", return_state=True).is_completed()
        assert not (hosts / name / ".scratch/campaigns/one/seed").exists()
    assert len(list((hosts / "store/files/md5").rglob("*/*"))) == 1


def test_what_keeps_a_worker_from_a_stage_is_said(hub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts, commit = hub.parent, git(hub, "rev-parse", "main")
    monkeypatch.chdir(clone(hub, hosts / "bare"))
    with pytest.raises(SnapshotError, match="a stage on a worker needs a DVC remote: dvc remote add"):
        run_on_worker("one", commit, "seed")
    with pytest.raises(SnapshotError, match=r"campaign gone: its branch campaign/gone cannot be fetched from origin"):
        run_on_worker("gone", "0" * 40, "seed")
    git(hub, "branch", "campaign/here", commit)
    with pytest.raises(SnapshotError, match="has campaign/here, but no commit 0000"):
        run_on_worker("here", "0" * 40, "seed")
