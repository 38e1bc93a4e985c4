"""The campaign for a lent GPU, at its small size on a CPU, without what such a machine has not."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import yaml

from benchmarks import gpu_campaign
from tasks.frame.params import validate
from tests.flows.test_pipeline_smoke import ROOT, environment

ABSENT = ["dvc", "prefect", "mlflow", "trl", "great_expectations", "alfworld", "textworld", "ray", "ruamel.yaml"]
"""What a lent machine has not."""


def test_it_imports_nothing_that_a_lent_machine_has_not():
    code = f"import sys, benchmarks.gpu_campaign; print([name for name in {ABSENT} if name in sys.modules])"
    said = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert said.strip() == "[]"


@pytest.mark.parametrize("small", [True, False])
def test_its_parameters_are_those_of_the_profiles_with_its_sizes(small, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    params = validate(gpu_campaign.campaign_params("cpu", small, 3, tmp_path, ["method.steps=7"]), "params.yaml")
    assert (params.seed, params.method.steps, params.games.root) == (3, 7, str(tmp_path))
    if not small:
        assert params.rollout.games * params.rollout.episodes_per_game == 70_000
        assert (params.games.unseen, params.as_dict()["method"]["search"]) == (400, "beam_1x16")


def test_the_report_says_what_stopped_and_how_many_rollouts_fitted():
    row = {"iteration": 0, "split": "unseen", "decoding": "greedy", "games": 8, "success": 0.5, "ci_low": 0.2,
           "ci_high": 0.8, "mean_actions": 20.0}  # fmt: skip
    adds = {"adds": 0.1, "adds_low": 0.02, "adds_high": 0.18}
    report = {
        "machine": {"device": "H100", "torch": "2.11"}, "seed": 1, "parameters": 30_000_000, "curve": [row],
        "rollouts": {"asked": 70_000, "played": 41_000}, "stopped": "policy@2: the minutes are over",
        "steps": {"sft": {"seconds": 30.0, "tokens_per_s": 5}}, "prm_adds": {"0": adds, "1": None},
    }  # fmt: skip
    told = gpu_campaign.text(report)
    assert "41,000 of 70,000, as many as fit into the time" in told and "**Stopped** at policy@2" in told
    assert "| 0 | unseen | greedy | 8 | 50.0% | 20.0% – 80.0% | 20.0 |" in told
    assert "policy 0 wins +10.0 points [2.0, 18.0] more" in told and "policy 1" not in told


@pytest.mark.slow
def test_the_small_campaign_runs_on_tables_where_little_is_installed(tmp_path):
    bare, env = tmp_path / "bare", environment()
    bare.mkdir()
    (bare / "sitecustomize.py").write_text(f"import sys\nsys.modules.update(dict.fromkeys({ABSENT}))\n")
    one = ["iterations={'1': {prev: 0}}", "policies={'0': {prm: 1}, '1': {prm: 1}}"]
    asked = [sys.executable, "-m", "benchmarks.gpu_campaign", "--small", "--minutes", "15", *one]

    def ran(*words: str, **where: str) -> str:
        words = (*words, "--out", str(tmp_path / "out"))
        done = subprocess.run([*asked, *words], cwd=ROOT, env=env | where, capture_output=True, text=True)
        log = tmp_path / "out" / "stages.log"
        assert done.returncode == 0, done.stderr + (log.read_text()[-3000:] if log.exists() else "")
        return done.stdout

    ran("--tables", str(tmp_path / "tables"), "--folder", str(tmp_path / "there"))
    here = {"PYTHONPATH": os.pathsep.join([str(bare), str(ROOT)])}
    said = ran("--games", str(tmp_path / "tables"), "--folder", str(tmp_path / "here"), **here)
    report = json.loads((tmp_path / "out" / "campaign.json").read_text())
    assert json.loads(said.splitlines()[-1])["stopped"] is None and report["stopped"] is None
    assert {row["iteration"] for row in report["curve"]} == {0, 1}
    assert {row["split"] for row in report["curve"]} == {"seen", "unseen"}
    assert "demos" not in report["steps"] and report["steps"]["rollout@1"]["turns_per_s"] > 0
    assert "Great Expectations is not installed" in (tmp_path / "out" / "stages.log").read_text()
    params = yaml.safe_load((tmp_path / "here" / "params.yaml").read_text())
    assert params["rollout"]["games"] * 4 == report["rollouts"]["played"]
