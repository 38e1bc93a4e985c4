"""Stage ``label`` on toy rollouts: the coverage report and its picture, and labels shaped with a reference policy."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from mlflow import MlflowClient

from agentprm_core.datasets import atomic_write, read_table
from agentprm_core.policy.models import save_checkpoint
from agentprm_core.prm.model import new_prm
from agentprm_core.types import LABELS
from tasks import label
from tasks.frame import layout
from tasks.frame.sender import flush
from tasks.frame.stage import run_stage
from tests.flows.test_inverse_stages import write_data, write_params
from tests.model import text_world


@pytest.fixture
def labelled(tmp_path, monkeypatch):
    """q by turn with this shaping."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.chdir(tmp_path)
    write_data(None)

    def run(shaping: dict | None) -> np.ndarray:
        plain = {"branch": {"random_states": 0}}  # their values would not be shaped
        write_params(tmp_path, ("smoke",), critic={"gamma": 0.9, "shaping": shaping}, rollout=plain)
        run_stage("label", label.work, iterated=True, gated=True, arguments=["--iteration", "1"])
        return read_table(layout.labels(1), LABELS)["q"].to_numpy()

    return run


def reference(path: Path) -> None:
    """A PRM whose scores vary."""
    renderer = text_world.renderer()
    model = new_prm(text_world.small_model(renderer, seed=3))
    torch.manual_seed(0)
    torch.nn.init.normal_(model.score.weight, std=1.0)
    with atomic_write(path) as folder:
        save_checkpoint(model, renderer.tokenizer, folder, kind="prm")


def test_coverage_and_shaping(labelled, tmp_path):
    plain = labelled(None)
    the_report_is_with_the_figures_and_its_picture_in_mlflow(tmp_path)
    own = labelled({"kind": "blend", "alpha": 0.25, "reference": None})
    reference(tmp_path / "reference")
    of_another = labelled({"kind": "blend", "alpha": 0.25, "reference": "reference"})
    for shaped in (own, of_another):
        assert np.abs(shaped - 0.75 * plain - 0.125).max() <= 0.125 + 1e-6  # the rest is 0.25 A / 2, A in [-1, 1]
        assert np.abs(shaped - plain).max() > 0.01
    assert not np.allclose(own, of_another)


def the_report_is_with_the_figures_and_its_picture_in_mlflow(folder: Path) -> None:
    report = json.loads(layout.metrics("label-1").read_text())["coverage"]
    turns = sum(row["turns"] for row in report["visits"])
    assert turns == read_table(layout.labels(1), LABELS).num_rows - 1  # but for the turn that was replayed
    assert {"share", "correlation", "mse", "by_visits"} <= report["held_out"].keys()
    flush()
    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    (run,) = client.search_runs(["1"], "tags.stage = 'label'")
    assert [file.path for file in client.list_artifacts(run.info.run_id, "plots")] == ["plots/coverage-1.png"]
    assert "label.coverage.held_out.correlation" in run.data.metrics
