"""MLflow: campaign, iteration and stage runs that find each other across processes; data by DVC's md5; the champion."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from mlflow import MlflowClient

from agentprm_core.datasets import atomic_write
from tasks.frame.tracking import MODEL, RUNS, Tracker, dvc_md5, flatten

ROOT = Path(__file__).parents[2]
PARAMS = {"seed": 1, "rollout": {"games": 3, "branch": {"states": 2}}, "label": {"gamma": 0.9}}


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    """One database for all: making one takes seconds."""
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"


@pytest.fixture
def client(database, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", database)
    return MlflowClient(database)


def runs() -> dict:
    return json.loads(RUNS.read_text())


def test_campaign_iteration_and_stage(client):
    first = Tracker("rollout@1", 1, PARAMS)
    first.log_metrics({"rollout": {"success": 0.5, "name": "x", "flag": True}})
    first.end()
    Tracker("label@1", 1, PARAMS).end()
    ids = runs()
    assert {"campaign", "iteration/1", "rollout@1", "label@1"} <= ids.keys()
    parent = {name: client.get_run(ids[name]).data.tags.get("mlflow.parentRunId") for name in ids if name != "owner"}
    assert parent == {
        "campaign": None,
        "iteration/1": ids["campaign"],
        "rollout@1": ids["iteration/1"],
        "label@1": ids["iteration/1"],
    }
    assert client.get_run(ids["campaign"]).data.params["rollout.branch.states"] == "2"
    assert client.get_run(ids["rollout@1"]).data.params == {
        "seed": "1",
        "rollout.games": "3",
        "rollout.branch.states": "2",
    }
    for name in ("rollout@1", "iteration/1", "campaign"):
        (point,) = client.get_metric_history(ids[name], "rollout.success")
        assert (point.value, point.step) == (0.5, 1)
    assert client.get_run(ids["rollout@1"]).data.metrics == {"rollout.success": 0.5}
    assert {client.get_run(ids[name]).info.status for name in ("rollout@1", "iteration/1")} == {"FINISHED"}


def test_other_parameters_open_another_campaign(client):
    Tracker("games", None, PARAMS).end()
    before = runs()["campaign"]
    Tracker("games", None, PARAMS).end()
    assert runs()["campaign"] == before
    Tracker("games", None, PARAMS | {"seed": 2}).end()
    assert runs()["campaign"] != before


def test_a_killed_stage_is_closed_by_the_next_run_of_it(client):
    Tracker("rollout@1", 1, PARAMS)
    killed = runs()["rollout@1"]
    assert client.get_run(killed).info.status == "RUNNING"
    Tracker("rollout@1", 1, PARAMS).end()
    assert client.get_run(killed).info.status == "KILLED"


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
    (used,) = client.get_run(tracker.run_id).inputs.dataset_inputs
    assert used.dataset.digest == dvc_md5(folder)
    assert used.tags[0].value == "output"


def test_policies_are_registered_with_their_lineage_and_one_is_champion(client, tmp_path):
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "model.safetensors").write_text("weights")
    tracker = Tracker("policy@1", 1, PARAMS)
    assert not tracker.registered("d1", 1)
    tracker.register_policy(tmp_path / "policy", "d1", 1, {"policy": "d0", "prm": "p1"})
    tracker.register_policy(tmp_path / "policy", "d2", 2, {"policy": "d1", "prm": "p2"})
    tracker.register_policy(tmp_path / "policy", "d1", 3, {"policy": "d1", "refused_prm": "p3"})
    assert tracker.registered("d1", 1) and not tracker.registered("d1", 2)
    tracker.crown("d1", 1)
    champion = client.get_model_version_by_alias(MODEL, "champion")
    assert champion.tags["digest"] == "d1"
    assert (champion.tags["parent.policy"], champion.tags["parent.prm"], champion.tags["iteration"]) == (
        "d0",
        "p1",
        "1",
    )
    assert champion.tags["dvc_md5"].endswith(".dir")
    experiment = client.get_run(tracker.run_id).info.experiment_id
    models = client.search_logged_models(experiment_ids=[experiment])
    assert {model.name for model in models} == {"policy-1", "policy-2", "policy-3"}, (
        "on the page of the runs, not on Default's"
    )


def test_nested_names():
    assert list(flatten({"a": {"b": 1, "c": {"d": 2}}, "e": [1]})) == [("a.b", 1), ("a.c.d", 2), ("e", [1])]


@pytest.mark.integration
def test_a_new_database_is_made_in_silence(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    command = [sys.executable, "-c", "from tasks.frame.tracking import connect; connect()"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert (tmp_path / "mlflow.db").exists()
    assert (done.stdout, done.stderr) == ("", "")
