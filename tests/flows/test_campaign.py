"""The flows against a Prefect server: what runs, what is fresh, what fails, and what is left when one is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.settings import get_current_settings

from flows import dvc_join, snapshot
from flows.campaign import campaign
from flows.dvc_join import StageFailed
from flows.iteration import iteration
from tests.flows.conftest import processes_in
from tests.waiting import until

pytestmark = [pytest.mark.usefixtures("prefect_server"), pytest.mark.xdist_group("prefect")]


def state_names(flow_run_id: object) -> dict[str, str]:
    """State names of the tasks of a flow run, by task run name, as the server has them."""
    with get_client(sync_client=True) as client:
        runs = client.read_task_runs(flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=[flow_run_id])))
    return {run.name: run.state_name for run in runs}


def tries(flow_run_id: object, task: str) -> int:
    with get_client(sync_client=True) as client:
        runs = client.read_task_runs(flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=[flow_run_id])))
    return next(run.run_count for run in runs if run.name == task)


def artifact_keys() -> set[str]:
    with get_client(sync_client=True) as client:
        return {artifact.key for artifact in client.read_artifacts()}


def test_a_campaign_runs_every_stage_and_a_second_one_none(project: Path) -> None:
    names = ["seed", "grow@1", "measure@1", "grow@2", "measure@2", "compare"]
    assert [(run.stage, run.outcome) for run in campaign(name="one")] == [(name, "Completed") for name in names]
    root = project / snapshot.CAMPAIGNS / "one" / "campaign"
    assert (root / "data/2.txt").read_text() == "seed\ndata/0.txtdata/1.txtdata/2.txt"
    assert not (project / "data").exists()
    assert {"campaign-gates", "campaign-stages", "campaign-iterations"} <= artifact_keys()
    committed = snapshot.git(project, "log", "--format=%s", "main..campaign/one").splitlines()
    assert committed[:-1] == [f"one: {name}" for name in reversed(names)]

    state = campaign(name="one", return_state=True)
    assert [(run.stage, run.outcome) for run in state.result()] == [(name, "UpToDate") for name in names]
    shown = state_names(state.state_details.flow_run_id)
    assert (shown["seed"], shown["compare"]) == ("UpToDate", "UpToDate")


def test_stages_that_do_not_need_each_other_run_at_once(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stage that never ends is ended after the campaign's hours; the others may take as long as they need here."""
    (project / "naps").write_text("measure@1")
    reproduce = dvc_join.reproduce

    def patient(stage: str, log: Callable[[str], object], hours: float) -> list[str]:
        return reproduce(stage, log, hours if stage == "measure@1" else dvc_join.HOURS)

    monkeypatch.setattr(dvc_join, "reproduce", patient)
    state = campaign(name="two", at_once=2, hours=0.002, return_state=True)
    assert state.is_failed()
    assert "stage measure@1 was ended" in state.message
    assert (project / snapshot.CAMPAIGNS / "two/campaign/data/2.txt").exists()
    assert processes_in(project) == []


def test_an_iteration_runs_what_it_needs_and_no_more(project: Path) -> None:
    assert [run.stage for run in iteration(1)] == ["seed", "grow@1", "measure@1"]
    assert not (project / "data/2.txt").exists()


def test_a_failing_stage_fails_the_flow_and_is_named_there(project: Path) -> None:
    (project / "faults").write_text("grow@1")
    state = campaign(retries=1, return_state=True)
    assert state.is_failed()
    assert "stage grow@1 failed" in state.message
    with pytest.raises(StageFailed, match="the lines do not grow"):
        state.result()
    (root,) = project.glob(f"{snapshot.CAMPAIGNS}/*/campaign")
    assert not (root / "data/1.txt").exists()
    assert tries(state.state_details.flow_run_id, "grow@1") == 1  # the same would come of it


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_flow_leaves_no_process_and_the_next_completes(project: Path, end: signal.Signals) -> None:
    (project / "naps").write_text("seed")
    env = {**os.environ, "PREFECT_API_URL": get_current_settings().api.url}
    with (project / "flow.log").open("w") as log:
        flow = subprocess.Popen([sys.executable, "-m", "flows.campaign"], env=env, stdout=log, stderr=log)
    asides = f"{snapshot.CAMPAIGNS}/*/campaign/data/0.txt.aside"
    until(lambda: list(project.glob(asides)), 600, (project / "flow.log").read_text, process=flow)
    flow.send_signal(end)
    flow.wait(timeout=120)
    until(lambda: not processes_in(project))
    (root,) = project.glob(f"{snapshot.CAMPAIGNS}/*/campaign")
    assert not (root / "data/0.txt").exists()

    (root / "naps").write_text("")
    assert campaign(name=root.parent.name, return_state=True).is_completed()


def test_what_params_may_not_hold_is_refused_before_anything_starts(project: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "flows.campaign", "smokes"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "profiles/smokes.yaml: no such profile; there are: none\n")
    state = campaign(name="odd", profiles=["smoke"], return_state=True)
    assert state.is_failed() and "no such profile" in state.message
    assert not snapshot.exists(project, "campaign/odd")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("campaign", "--at-once", "0"), 2, "argument --at-once: '0' is not a whole number that is at least 1"),
        (("campaign", "--hours", "-1"), 2, "argument --hours: '-1' is not a number above 0"),
        (("campaign", "--name", "a b"), 2, "campaign 'a b': letters, digits, dot, dash and underscore only"),
        (("campaign", "--workers"), 2, ": no Git remote origin: workers fetch the campaign from it"),
        (("iteration", "9"), 1, "iteration 9: dvc.yaml has the iterations 1, 2"),
    ],
)
def test_what_cannot_be_is_said_before_anything_starts(project: Path, words, code: int, said: str) -> None:
    done = subprocess.run([sys.executable, "-m", f"flows.{words[0]}", *words[1:]], capture_output=True, text=True)
    assert done.returncode == code and said in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_a_server_that_is_away_provisions_nothing(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    done = subprocess.run([sys.executable, "-m", "flows.provision"], capture_output=True, text=True)
    said = "provision: Prefect at http://127.0.0.1:9/api does not answer (ConnectError): start it, or make ui\n"
    assert (done.returncode, done.stderr) == (1, said)
