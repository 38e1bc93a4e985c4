"""A campaign of a deployment whose process is killed: the server starts it again, and it goes on."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from prefect.client.orchestration import get_client
from prefect.deployments import run_deployment
from prefect.settings import get_current_settings

from flows import snapshot
from flows.provision import deploy, provision
from flows.snapshot import git
from tests.flows.conftest import ROOT
from tests.flows.test_workers import Worker
from tests.waiting import until

pytestmark = [pytest.mark.usefixtures("prefect_server"), pytest.mark.xdist_group("prefect"), pytest.mark.slow]


def test_a_killed_campaign_is_started_again_and_goes_on(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "naps").write_text("grow@1")
    (project / "flows").symlink_to(ROOT / "flows")
    (project / ".git/info/exclude").write_text("flows\n")
    git(project, "commit", "-q", "-a", "-m", "a stage that sleeps after a portion")
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PREFECT_API_URL", get_current_settings().api.url)
    provision()
    deploy()
    root = project / snapshot.CAMPAIGNS / "killed/campaign"
    with ExitStack() as stack, get_client(sync_client=True) as client:
        worker = Worker(project)
        stack.callback(worker.kill)
        run = run_deployment("campaign/campaign", parameters={"name": "killed"}, timeout=0, as_subflow=False)
        said = (project / ".git/worker.log").read_text
        until((root / ".scratch/grow@1/portion.txt").exists, 300, said)
        seed = (root / "data/0.txt").stat().st_mtime_ns
        for process in psutil.Process(worker.process.pid).children():
            process.kill()
        until(lambda: client.read_flow_run(run.id).state.is_completed(), 300, said)
        assert client.read_flow_run(run.id).run_count == 2
    assert (root / "data/2.txt").read_text() == "seed\ndata/0.txtdata/1.txtdata/2.txt"
    assert (root / "data/0.txt").stat().st_mtime_ns == seed, "a stage that had ended ran again"
