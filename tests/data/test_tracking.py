"""MLflow: what a stage says and where it arrives: runs by tags, live figures, cached stages, failures."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from mlflow import MlflowClient

from agentprm_core.datasets import atomic_write
from agentprm_core.progress import progress, watched_by, watcher
from tasks.frame import layout, tracking
from tasks.frame.home import HOME, home, spool_folder
from tasks.frame.sender import flush
from tasks.frame.stage import write_json
from tasks.frame.tracking import EXPERIMENT, Tracker, campaign_id, dvc_md5, flatten, tracking_uri
from tests.waiting import until

ROOT = Path(__file__).parents[2]
START_SENDER = tracking.start_sender  # before tests replace it
ADDRESS = "http://ann:hunter22@host/"
PARAMS = {"seed": 1, "rollout": {"games": 3, "branch": {"states": 2}}, "label": {"gamma": 0.9}}


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    """One database for all: making one takes seconds."""
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"


@pytest.fixture
def client(database, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", database)
    monkeypatch.setenv("AGENTPRM_CAMPAIGN", tmp_path.name)
    return MlflowClient(database)


def runs(client: MlflowClient, **tags: str) -> list:
    """Of this test's campaign, oldest first."""
    asked = {"campaign": os.environ["AGENTPRM_CAMPAIGN"], **tags}
    (experiment,) = client.search_experiments(filter_string=f"name = '{EXPERIMENT}'")
    found = client.search_runs(
        [experiment.experiment_id], " and ".join(f"tags.{name} = '{value}'" for name, value in asked.items())
    )
    return sorted(found, key=lambda run: run.info.start_time)


def run_of(client: MlflowClient, stage: str, iteration: int | None = None):
    (found,) = runs(client, stage=stage, **({"iteration": str(iteration)} if iteration is not None else {}))
    return found


def test_campaign_iteration_and_stage(client):
    first = Tracker("rollout", 1, PARAMS)
    first.log_metrics({"rollout": {"success": 0.5, "name": "x", "flag": True, "best_of_2@0.7": 1}})
    first.end()
    Tracker("label", 1, PARAMS).end()
    assert flush() == 2 and list(spool_folder().glob("*.jsonl")) == []
    campaign, iteration = run_of(client, "campaign"), run_of(client, "iteration", 1)
    rollout, label = run_of(client, "rollout", 1), run_of(client, "label", 1)
    parents = [run.data.tags.get("mlflow.parentRunId") for run in (campaign, iteration, rollout, label)]
    assert parents == [None, campaign.info.run_id, iteration.info.run_id, iteration.info.run_id]
    assert campaign.data.params["rollout.branch.states"] == "2"
    assert rollout.data.params == {"seed": "1", "rollout.games": "3", "rollout.branch.states": "2"}
    for run in (campaign, iteration, rollout):
        (point,) = client.get_metric_history(run.info.run_id, "rollout.success")
        assert (point.value, point.step) == (0.5, 1)
    assert rollout.data.metrics["rollout.best_of_2_at_0.7"] == 1
    assert {run.info.status for run in (rollout, iteration)} == {"FINISHED"}


def test_other_parameters_are_another_campaign(monkeypatch):
    monkeypatch.delenv("AGENTPRM_CAMPAIGN", raising=False)
    assert campaign_id(PARAMS) == campaign_id(dict(reversed(PARAMS.items()))) != campaign_id(PARAMS | {"seed": 2})
    monkeypatch.setenv("AGENTPRM_CAMPAIGN", "summer")
    assert campaign_id(PARAMS) == "summer"


def test_what_runs_in_a_copy_of_the_checkout_tells_the_checkouts_mlflow(tmp_path, monkeypatch):
    for name in ("AGENTPRM_CAMPAIGN", "MLFLOW_TRACKING_URI", HOME):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    assert (home(), tracking_uri()) == (Path(), "sqlite:///mlflow.db")
    queued = tmp_path / ".dvc/tmp/exps/tmpab12"
    queued.mkdir(parents=True)
    monkeypatch.chdir(queued)
    assert (home(), tracking_uri()) == (tmp_path, f"sqlite:///{tmp_path}/mlflow.db")
    assert spool_folder() == tmp_path / ".scratch/spool"
    monkeypatch.setenv(HOME, str(tmp_path / "other"))
    assert home() == tmp_path / "other"


def test_a_killed_stage_keeps_its_figures_and_is_closed(client):
    killed = Tracker("rollout", 1, PARAMS)
    killed.log_metrics({"rollout": {"success": 0.5}})
    assert flush() == 0, "it lives and holds its file"
    killed.spool.close()  # as a kill does
    assert flush() == 1
    run = run_of(client, "rollout", 1)
    assert (run.info.status, run.data.metrics["rollout.success"]) == ("KILLED", 0.5)


def test_a_failed_stage_says_why_and_no_password(client, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    failed = Tracker("rollout", 1, PARAMS)
    try:
        raise ValueError(f"{ADDRESS} refused {os.environ['OPENAI_API_KEY']}")
    except ValueError as error:
        failed.failed(error)
    written = "".join(path.read_text() for path in spool_folder().rglob("*") if path.is_file())
    assert "hunter22" not in written and "sk-very" not in written
    flush()
    run = run_of(client, "rollout", 1)
    assert run.info.status == "FAILED"
    assert run.data.tags["error"] == "ValueError: http://***@host/ refused ***"
    text = Path(client.download_artifacts(run.info.run_id, "error.txt")).read_text()
    assert "Traceback" in text and "test_tracking.py" in text and "hunter22" not in text


def test_live_figures_have_their_own_times_and_steps(client):
    tracker = Tracker("sft", None, PARAMS)
    tracker.live._every = 0.0
    with watched_by(tracker.live), progress(3, "step") as bar:
        for step in (1, 2, 3):
            time.sleep(0.01)
            watcher().trained(step, {"step": step, "loss": 1 / step})
            bar.update()
        watcher().turns(5)
        watcher().episode(True, 40)
        time.sleep(0.01)
        watcher().episode(False, 20)
    watcher().turns(1000)  # nobody's
    tracker.log_curve("sft", [{"step": 1, "loss": 1.0}, {"step": 4, "loss": 0.25}])
    tracker.end()
    flush()
    run = run_of(client, "sft")
    history = client.get_metric_history(run.info.run_id, "sft.loss")
    assert [(point.step, point.value) for point in history] == [(1, 1.0), (2, 0.5), (3, 1 / 3), (4, 0.25)]
    assert len({point.timestamp for point in history[:3]}) == 3
    said = run.data.metrics
    assert (said["live.turns"], said["live.episodes"], said["live.success"], said["live.tokens"]) == (5, 2, 0.5, 60)
    assert (said["live.steps"], said["live.steps_in_all"]) == (3, 3) and said["live.memory_mb"] > 10


def test_stages_that_did_not_run_again_are_linked_into_the_campaign(client, tmp_path, monkeypatch):
    """π₀'s figures are on the chart of a campaign in which only later stages ran."""
    layout.DEMOS.parent.mkdir(parents=True)
    layout.DEMOS.write_text("demos")
    figures = layout.metrics("evaluate-0")
    write_json({"unseen": {"success": 0.7}}, figures)
    monkeypatch.setenv("AGENTPRM_CAMPAIGN", f"{tmp_path.name}-before")
    before = Tracker("evaluate", 0, PARAMS)
    before.log_figures(figures)
    before.end()
    out = {"path": str(figures), "md5": dvc_md5(figures)}
    lock = {"evaluate@0": {"deps": [], "outs": [out, {"path": "data/evaluations/0"}]}}
    (tmp_path / "dvc.lock").write_text(yaml.safe_dump({"schema": "2.0", "stages": lock}))
    layout.outcomes(0).parent.mkdir(parents=True)
    layout.outcomes(0).write_text("outcomes")
    monkeypatch.setenv("AGENTPRM_CAMPAIGN", tmp_path.name)
    for _ in range(2):
        compare = Tracker("compare", None, PARAMS | {"seed": 2})
        compare.log_data(layout.outcomes(0), "input")
        compare.end(campaign=True)
    flush()
    linked, campaign = run_of(client, "evaluate", 0), run_of(client, "campaign")
    (point,) = client.get_metric_history(campaign.info.run_id, "evaluate.unseen.success")
    assert (point.value, point.step) == (0.7, 0)
    assert linked.data.tags["cached"] == "true" and linked.data.tags["first_campaign"] == f"{tmp_path.name}-before"


def test_figures_of_a_policy_are_its_models_too(client, tmp_path):
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "model.safetensors").write_text("weights")
    (tmp_path / "games.parquet").write_text("games")
    trained = Tracker("policy", 1, PARAMS)
    trained.register_policy(tmp_path / "policy", tmp_path.name, 1, {"policy": "d0", "prm": "p1"})
    trained.end()
    measured = Tracker("evaluate", 1, PARAMS)
    measured.log_data(Path("games.parquet"), "input")
    measured.log_metrics({"evaluate": {"success": 0.8}}, of=tmp_path.name, on=Path("games.parquet"))
    measured.end()
    flush()
    experiment = run_of(client, "policy", 1).info.experiment_id
    (model,) = client.search_logged_models([experiment], f"tags.digest = '{tmp_path.name}'")
    (metric,) = model.metrics
    assert (model.name, model.tags["parent.prm"], metric.key, metric.value) == (
        "policy-1",
        "p1",
        "evaluate.success",
        0.8,
    )
    assert (metric.dataset_name, metric.dataset_digest) == ("games.parquet", dvc_md5(tmp_path / "games.parquet"))


@pytest.mark.integration
def test_data_by_dvcs_md5(client, tmp_path):
    folder = tmp_path / "data" / "set"
    for name, text in (("b/two.txt", "2"), ("a.txt", "1")):
        with atomic_write(folder / name) as aside:
            aside.write_text(text)
    subprocess.run([sys.executable, "-m", "dvc", "init", "-q", "--no-scm"], check=True)
    subprocess.run([sys.executable, "-m", "dvc", "add", "-q", "data/set"], check=True)
    recorded = (tmp_path / "data" / "set.dvc").read_text()
    assert dvc_md5(folder) in recorded
    tracker = Tracker("games", None, PARAMS)
    tracker.log_data(folder, "output")
    tracker.end()
    flush()
    (used,) = run_of(client, "games").inputs.dataset_inputs
    assert used.dataset.digest == dvc_md5(folder)
    assert used.tags[0].value == "output"


def test_nested_names():
    assert list(flatten({"a": {"b": 1, "c": {"d": 2}}, "e": [1]})) == [("a.b", 1), ("a.c.d", 2), ("e", [1])]


@pytest.mark.integration
def test_a_new_database_is_made_in_silence(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    command = [sys.executable, "-c", "from tasks.frame.mlflow_store import connect; connect()"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert (tmp_path / "mlflow.db").exists()
    assert (done.stdout, done.stderr) == ("", "")


KILLED = """
import time
from tasks.frame.tracking import Tracker
tracker = Tracker("sft", None, {"seed": 1})
for step in (1, 2):
    tracker.live.trained(step, {"loss": 1 / step})
print("told", flush=True)
time.sleep(600)
"""


@pytest.mark.integration
def test_a_stage_killed_in_the_middle_leaves_its_curve_and_no_process(client, tmp_path):
    """The sender is on its own then: it sends what was said, closes the run and goes."""
    with subprocess.Popen(
        [sys.executable, "-c", KILLED], stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(ROOT)}
    ) as stage:
        assert stage.stdout is not None and stage.stdout.readline() == b"told\n"
        stage.send_signal(signal.SIGKILL)
    until(lambda: not list(spool_folder().glob("*.jsonl")))
    run = run_of(client, "sft")
    assert [point.step for point in client.get_metric_history(run.info.run_id, "sft.loss")] == [1, 2]
    assert run.info.status == "KILLED"


def test_without_mlflow_figures_stay_in_a_file(monkeypatch, capsys):
    monkeypatch.setattr(tracking, "find_spec", lambda name: None)
    assert START_SENDER(Path("spool.jsonl")) is None
    assert capsys.readouterr().err == "figures are kept in spool.jsonl: MLflow is not installed\n"
