"""What one reads when a password is wrong or a server of a team is away, and that nothing is lost."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from mlflow import MlflowClient

from flows.provision import CAMPAIGN_POOL, CPU_POOL
from tests.flows.hosts import Host, Prefect, hub
from tests.flows.team import Team
from tests.flows.test_team import toy
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("team")]


def python(team: Team, folder: Path, *module: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = team.environment(PYTHONPATH=os.pathsep.join(sys.path), PREFECT_HOME=str(folder / "home"), **more)
    command = [sys.executable, "-m", *module]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


def test_a_wrong_password_for_prefect_is_one_line(team: Team, project: Path) -> None:
    wrong = {"PREFECT_API_AUTH_STRING": "somebody:else"}
    said = python(team, project, "flows.campaign", "--workers", **wrong)
    assert said.returncode == 1
    (line,) = said.stderr.splitlines()
    url = f"{team.url('prefect')}/api"
    assert line == (f"campaign: Prefect at {url} refuses (401 Unauthorized): set PREFECT_API_AUTH_STRING=USER:PASSWORD")
    assert not (project / ".scratch").exists()
    worker = python(team, project, "prefect", "worker", "start", "--pool", CPU_POOL, **wrong)
    assert worker.returncode == 1 and "401 Unauthorized" in " ".join((worker.stdout + worker.stderr).split())


def test_a_wrong_password_for_mlflow_is_said_and_nothing_is_lost(team: Team, project: Path) -> None:
    tell = (
        "from tasks.frame import tracking; tracking.start_sender = lambda path: None\n"
        "t = tracking.Tracker('rollout', 1, {'seed': 1}); t.log_metrics({'rollout': {'success': 0.5}}); t.end()"
    )
    named = {"AGENTPRM_CAMPAIGN": "passwords"}
    environment = team.environment(PYTHONPATH=os.pathsep.join(sys.path), **named)
    subprocess.run([sys.executable, "-c", tell], cwd=project, env=environment, check=True)
    said = python(team, project, "tasks.commands.flush_tracking", MLFLOW_TRACKING_PASSWORD="somebody-else")
    assert said.returncode == 1
    (line,) = said.stderr.splitlines()
    assert line.startswith("MLflow is away (") and "401" in line and line.endswith("1 files stay in .scratch/spool")
    said = python(team, project, "tasks.commands.flush_tracking")
    assert (said.returncode, said.stdout.splitlines()[-1]) == (0, "sent what 1 stages had to say")


@pytest.fixture
def asked(team: Team, tmp_path: Path) -> Iterator[tuple[Host, Host]]:
    """A campaign ``tmp_path.name`` on one worker, of whose stages one sleeps for half a minute."""
    bare = hub(tmp_path, toy(naps="grow@1", seconds=30, iterations=1, seed=tmp_path.name))
    with ExitStack() as ended:
        worker, flow = Host(team, bare, tmp_path / "worker"), Host(team, bare, tmp_path / "flow", CAMPAIGN_POOL)
        for host in (worker, flow):
            ended.callback(host.vanish)
        until(lambda: (flow.folder / ".dvc/config.local").exists(), 120, flow.log.read_text)
        start = ("prefect", "deployment", "run", "campaign/campaign-on-workers", "--flow-run-name", tmp_path.name)
        said = flow.run(*start, "--param", f"name={tmp_path.name}")
        assert said.returncode == 0, said.stderr
        yield worker, flow


def completed(team: Team, name: str, *hosts: Host) -> None:
    """Wait for the campaign's end."""
    prefect = Prefect(team)
    ends = ("Completed", "Failed", "Crashed")
    until(lambda: prefect.states(name)[-1] in ends, 400, lambda: "".join(host.log.read_text() for host in hosts))
    assert prefect.states(name) == ["Completed"], "".join(host.log.read_text()[-3000:] for host in hosts)


def test_postgres_is_away_in_the_middle_of_a_stage_and_the_campaign_ends_well(team: Team, asked, tmp_path: Path):
    worker, flow = asked
    until(lambda: team.store.names(f"campaigns/{tmp_path.name}/grow@1"), 300, worker.log.read_text)
    team.postgres.stop()
    try:
        time.sleep(45)  # the stage, which sleeps for 30 s, ends meanwhile
    finally:
        team.postgres.start()
    completed(team, tmp_path.name, worker, flow)


def test_mlflow_is_away_for_a_whole_campaign_and_nothing_is_lost(team: Team, asked, tmp_path: Path, monkeypatch):
    team.stop("mlflow")
    worker, flow = asked
    try:
        completed(team, tmp_path.name, worker, flow)
    finally:
        team.launch_mlflow()
        team.await_mlflow()
    assert "MLflow is away (" in worker.log.read_text()
    sent = worker.run("tasks.commands.flush_tracking")
    assert (sent.returncode, sent.stdout.splitlines()[-1]) == (0, "sent what 4 stages had to say")
    for name, value in team.environment().items():
        if name.startswith("MLFLOW_"):
            monkeypatch.setenv(name, value)
    client = MlflowClient(team.url("mlflow"))
    (experiment,) = client.search_experiments(filter_string="name = 'agentprm'")
    found = client.search_runs([experiment.experiment_id], f"tags.campaign = '{tmp_path.name}'")
    said = {run.data.tags["stage"]: run for run in found}
    assert {"campaign", "iteration", "seed", "grow", "measure", "compare"} == said.keys()
    assert said["grow"].data.metrics["grow.lines"] == len(f"{tmp_path.name}\ndata/0.txtdata/1.txt")
    assert {said[name].info.status for name in ("seed", "grow", "measure", "compare")} == {"FINISHED"}
