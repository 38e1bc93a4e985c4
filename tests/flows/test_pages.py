"""What people see in Prefect and MLflow, in a real browser: the form, a run, a stage that trains, the champion.

``AGENTPRM_PICTURES=docs/pages pytest -m slow tests/flows/test_pages.py`` writes the pictures of the documentation anew.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from tasks.frame.champion import CHALLENGER, CHAMPION
from tasks.frame.tracking import MLFLOW_TRAINING
from tests.chromium import chromium_page
from tests.flows import test_pipeline_smoke as smoke
from tests.flows.conftest import ROOT, processes_in
from tests.flows.hosts import tree
from tests.flows.test_team import real
from tests.flows.test_ui import await_servers, post
from tests.waiting import free_port, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3 * 3600), pytest.mark.xdist_group("pages")]

PICTURES = os.environ.get("AGENTPRM_PICTURES")
LONG_ENOUGH = "sft.epochs=9"
"""That the stage is still training when its page is looked at."""


class Ui:
    """``make ui`` over a clone with the smallest pipeline."""

    def __init__(self, folder: Path) -> None:
        self.folder = tree(folder, pipeline)
        ports = free_port(), free_port()
        self.prefect, self.mlflow = (f"http://127.0.0.1:{port}" for port in ports)
        command = [sys.executable, "-m", "flows.ui", "--prefect-port", str(ports[0]), "--mlflow-port", str(ports[1])]
        self.log = folder / "ui.log"
        env = smoke.environment() | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(self.folder)}
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, cwd=self.folder, env=env, stdout=log, stderr=log)
        await_servers(self.log, self.process)
        self.client = MlflowClient(self.mlflow)

    def ask(self, path: str, body: dict) -> Any:
        return post(f"{self.prefect}/api", path, body)

    def run(self, name: str) -> dict | None:
        """The flow run of that name, or None before there is one."""
        found = self.ask("/flow_runs/filter", {"flow_runs": {"name": {"any_": [name]}}})
        assert not found or found[0]["state"]["type"] not in ("FAILED", "CRASHED"), found[0]["state"]["message"]
        return found[0] if found else None

    def has_ended(self, name: str) -> bool:
        run = self.run(name)
        return run is not None and run["state"]["type"] == "COMPLETED"

    def stage(self, stage: str) -> Any:
        """Its newest run in MLflow, or None."""
        if not (experiments := self.client.search_experiments(filter_string="name = 'agentprm'")):
            return None
        found = self.client.search_runs([experiments[0].experiment_id], f"tags.stage = '{stage}'")
        return found[0] if found else None

    def until(self, true: Callable[[], Any]) -> Any:
        return until(true, 900, self.log.read_text, self.process)

    def end(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait(timeout=60)
        assert processes_in(self.folder) == []


def pipeline(tree: Path) -> None:
    """The smallest one, and the deployments."""
    real(tree)
    shutil.copy(ROOT / "prefect.yaml", tree)


@pytest.fixture
def ui(tmp_path: Path) -> Iterator[Ui]:
    started = Ui(tmp_path)
    yield started
    started.end()


@pytest.fixture
def page() -> Iterator[Any]:
    with chromium_page() as opened:
        yield opened


def look(page: Any, url: str, *expected: str, picture: str) -> None:
    """Open ``url``, wait until all of ``expected`` can be seen, and keep a picture."""
    page.goto(url, wait_until="load")
    see(page, *expected, picture=picture)


def see(page: Any, *expected: str, picture: str) -> None:
    for text in expected:
        page.get_by_text(text).first.wait_for(state="visible", timeout=60_000)
    page.wait_for_timeout(1500)  # charts move into their place
    if PICTURES:
        Path(PICTURES).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=Path(PICTURES) / f"{picture}.png")


def start_by_form(page: Any, ui: Ui, name: str, override: str) -> dict:
    """What somebody does who starts a campaign in Prefect's pages."""
    (deployment,) = ui.ask("/deployments/filter", {"deployments": {"name": {"any_": ["campaign"]}}})
    page.goto(f"{ui.prefect}/deployments/deployment/{deployment['id']}/run", wait_until="networkidle")
    page.locator("input[type=text]").first.fill(name)
    page.get_by_text("Add item").click()
    page.locator("textarea").nth(1).wait_for()  # the item's, above that of the last parameter
    page.locator("textarea").first.fill(override)
    page.locator("input[type=text]").first.scroll_into_view_if_needed()
    see(page, "named changes of params.yaml, from left to right.", picture="prefect-form")
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url) if "create_flow_run" in request.url else None)

    def pressed() -> list[str]:
        """A page that is still moving can lose a click, and a reader presses again."""
        page.get_by_role("button", name="Submit").click()
        page.wait_for_timeout(5000)
        return sent

    ui.until(pressed)
    run = ui.until(lambda: ui.run(name))
    assert run["parameters"]["overrides"] == [override]
    return run


def test_what_people_see(ui: Ui, page: Any) -> None:
    first = start_by_form(page, ui, "first", LONG_ENOUGH)

    def trains() -> Any:
        assert ui.run("first")  # it has not crashed
        run = ui.stage("sft")
        return run if run and ui.client.get_metric_history(run.info.run_id, "sft.loss")[5:] else None

    sft = ui.until(trains)
    assert sft.info.status == "RUNNING"
    experiment = sft.info.experiment_id
    mlflow = f"{ui.mlflow}/#/experiments/{experiment}"
    page.goto(f"{mlflow}/runs/{sft.info.run_id}/model-metrics?{MLFLOW_TRAINING}")
    page.get_by_placeholder("Search metric charts").fill("loss|accuracy")
    page.locator(".js-plotly-plot").first.wait_for(state="visible", timeout=60_000)
    see(page, "sft.loss", picture="mlflow-live")
    look(page, f"{ui.prefect}/runs/flow-run/{first['id']}", "Running", "sft", picture="prefect-run")
    page.goto("about:blank")  # a page that moves takes a core
    ui.until(lambda: ui.has_ended("first"))
    gates = ui.ask("/artifacts/latest/filter", {"artifacts": {"key": {"any_": ["campaign-gates"]}}})
    look(
        page,
        f"{ui.prefect}/artifacts/artifact/{gates[0]['latest_id']}",
        "Great Expectations' gates",
        "passed",
        picture="prefect-gates",
    )

    second = start_by_form(page, ui, "second", "method.steps=5")
    ui.until(lambda: ui.has_ended("second"))
    look(page, f"{ui.prefect}/runs/flow-run/{second['id']}", "Completed", picture="prefect-ended")
    look(page, f"{mlflow}/runs?{MLFLOW_TRAINING}", "first", "second", picture="mlflow-runs")
    found = ui.client.search_runs([experiment], "tags.stage = 'campaign'")
    assert [run.info.status for run in found] == ["FINISHED", "FINISHED"]
    (arena,) = ui.client.search_registered_models()
    assert arena.aliases.keys() >= {CHAMPION}
    page.set_viewport_size({"width": 1280, "height": 1700})  # all versions
    look(page, f"{ui.mlflow}/#/models/{arena.name}?{MLFLOW_TRAINING}", CHAMPION, CHALLENGER, picture="mlflow-models")
