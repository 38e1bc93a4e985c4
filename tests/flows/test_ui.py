"""``make ui`` in earnest: a deployment runs on its worker, and Ctrl-C in mid-stage leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from flows.ui import NotStarted, mlflow_command, require_free, server_environment
from tests.flows.conftest import ROOT, processes_in
from tests.waiting import free_port, until


def post(api: str, path: str, body: dict) -> dict | list:
    request = urllib.request.Request(api + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def await_servers(log: Path, ui: subprocess.Popen) -> None:
    until(lambda: "Ctrl-C ends all of it" in read(log), 400, log.read_text, ui)


def test_a_port_that_is_taken_is_named_with_the_variable_to_change() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(NotStarted, match=rf"port {port} is taken .*choose another: make ui PREFECT_PORT="):
            require_free(port, "PREFECT_PORT")


def test_a_server_elsewhere_is_mlflow_and_no_password_is_an_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("USERNAME", "PASSWORD"):
        monkeypatch.setenv(f"MLFLOW_TRACKING_{name}", "")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://ann:hunter22@mlflow.example:5000")
    env = server_environment(Path("home"), 4200, 5000)
    assert env["MLFLOW_UI_URL"] == "http://mlflow.example:5000" and "MLFLOW_BACKEND_STORE_URI" not in env
    assert (env["MLFLOW_TRACKING_USERNAME"], env["MLFLOW_TRACKING_PASSWORD"]) == ("ann", "hunter22")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql://ann:hunter22@db/mlflow")
    assert "hunter22" not in " ".join(mlflow_command(5000))
    assert (
        server_environment(Path("home"), 4200, 5000)["MLFLOW_BACKEND_STORE_URI"]
        == "postgresql://ann:hunter22@db/mlflow"
    )


@pytest.mark.slow
def test_a_deployment_runs_and_ctrl_c_ends_everything(project: Path) -> None:
    (project / "flows").symlink_to(ROOT / "flows")
    for name in ("prefect.yaml", "prefect.toml"):
        (project / name).write_text((ROOT / name).read_text())
    (project / "naps").write_text("grow@2")
    ports = free_port(), free_port()
    command = [sys.executable, "-m", "flows.ui", "--prefect-port", str(ports[0]), "--mlflow-port", str(ports[1])]
    with (project / "ui.log").open("w") as log:
        ui = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=log, stderr=log)
    await_servers(project / "ui.log", ui)

    api = f"http://127.0.0.1:{ports[0]}/api"
    (campaign,) = post(api, "/deployments/filter", {"deployments": {"name": {"any_": ["campaign"]}}})
    post(api, f"/deployments/{campaign['id']}/create_flow_run", {"state": {"type": "SCHEDULED"}})
    said = (project / "ui.log").read_text
    (root,) = until(lambda: list(project.glob(".scratch/campaigns/*/campaign")), 400, said, ui)
    until(lambda: "half a" in read(root / "data/2.txt.aside"), 400, said, ui)
    (first,) = post(api, "/task_runs/filter", {"task_runs": {"name": {"like_": "measure@1"}}})
    assert first["state"]["name"] == "Completed"

    ui.send_signal(signal.SIGINT)
    assert ui.wait(timeout=120) == 0
    assert processes_in(project) == []
    assert not (root / "data/2.txt").exists()
