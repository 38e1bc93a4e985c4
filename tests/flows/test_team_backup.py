"""The back-up of a team's databases, by the commands of docs/operations.md: on a new Postgres all is as it was."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from mlflow import MlflowClient

from tests.flows.hosts import Prefect
from tests.flows.team import ROOT, Postgres, Team, clean

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("team")]

DATABASES = ("prefect", "mlflow", "mlflow_auth")


def commands() -> tuple[str, str]:
    """That which dumps, and that which restores ``mlflow``, as the page has them."""
    page = (ROOT / "docs/operations.md").read_text()
    (dump,) = re.findall(r"^    (for name in .*pg_dump.*)$", page, re.MULTILINE)
    (restore,) = re.findall(r"^    (createdb mlflow && pg_restore[^#]*)", page, re.MULTILINE)
    return dump, restore


def content(postgres: Postgres, name: str) -> list[str]:
    """All rows, in any order, without the key that newer versions of pg_dump draw anew each time."""
    lines = postgres.run("pg_dump", "--data-only", name).splitlines()
    return sorted(line for line in lines if not line.startswith(("\\restrict", "\\unrestrict")))


def test_on_a_new_postgres_all_is_as_it_was(team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prefect = Prefect(team)
    flow = prefect.ask("/flows/", {"name": "campaign"})["id"]
    prefect.ask("/flow_runs/", {"flow_id": flow, "name": "kept", "state": {"type": "COMPLETED"}})
    for name, value in team.environment().items():
        if name.startswith("MLFLOW_"):
            monkeypatch.setenv(name, value)
    client = MlflowClient(team.url("mlflow"))
    experiment = client.create_experiment("kept")
    run = client.create_run(experiment, tags={"campaign": "kept"}).info.run_id
    client.log_metric(run, "success", 0.5)

    dump, restore = commands()
    for server in ("prefect", "mlflow"):
        team.stop(server)
    shell = {"cwd": tmp_path, "check": True}
    subprocess.run(["sh", "-ec", dump], env=clean() | team.postgres.variables(), **shell)
    new = Postgres()
    for name in DATABASES:
        new.run("dropdb", name)  # a new server has none
        asked = re.sub(r"\bmlflow\b", name, restore)
        subprocess.run(["sh", "-ec", asked], env=clean() | new.variables(), **shell)
    alike = {name: content(new, name) == content(team.postgres, name) for name in DATABASES}
    team.move(new)
    assert alike == dict.fromkeys(DATABASES, True)
    assert prefect.states("kept") == ["Completed"]
    assert client.get_run(run).data.metrics == {"success": 0.5}
    assert client.get_run(run).data.tags["campaign"] == "kept"
