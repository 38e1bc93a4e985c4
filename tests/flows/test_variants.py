"""Every value of the parameters that choose a method runs through its stages, on one tiny set of rollouts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from agentprm_core.credit.inverse import INVERSE
from agentprm_core.datasets import read_table
from agentprm_core.types import EPISODES, LABELS, PAIRS
from tasks.frame import layout
from tasks.frame.params import PARAMS
from tasks.frame.profile import overridden
from tests.flows.test_pipeline_smoke import project, run_stages

pytestmark = pytest.mark.slow

VARIANTS = {
    "branching": {"label": {"credit": "branching", "continuations": 1}},
    "history": {
        "label": {"key": "history", "discount_from": "start", "outcome": "signed"},
        "rollout": {"branch": {"random_states": 0}},
    },
    "relative": {
        "prm": {"loss": "relative", "start": "sft", "epochs": 8},
        "rollout": {"branch": {"train_states": 24, "actions": 3}},
        "policy": {"margin": 0.0},
    },
    "promise": {"label": {"credit": "gae"}, "prm": {"loss": "promise_progress", "start": "scratch"}},
    "outcome": {"prm": {"loss": "outcome"}, "rollout": {"branch": {"train_states": 12}}},
    "inverse": {
        "label": {"credit": "inverse"},
        "prm": {"loss": "inverse", "start": "prm"},
        "policy": {"method": "online_dpo"},
    },
    "observations": {"prm": {"observation_weight": 0.1}},
    "soft": {"policy": {"method": "online_dpo", "samples": 4, "refresh_every": 4}},
    "winner": {
        "policy": {"method": "online_dpo", "preference": "winner", "samples": 4, "refresh_every": 4, "anchor": "first"}
    },
    "rft": {"policy": {"method": "rft"}},
    "grpo": {"policy": {"method": "grpo"}},
    "gigpo": {"policy": {"method": "gigpo"}},
    "reset": {"rollout": {"reset_share": 0.5}},
    "free": {"rollout": {"constrained": False, "min_valid": 0.0}, "evaluate": {"constrained": False}},
    "search": {"evaluate": {"decoding": ["sample", "best_trajectory", "beam"], "beam": {"width": 2, "samples": 2}}},
}


@pytest.fixture(scope="module")
def fine_tuned(tmp_path_factory) -> Path:
    """The project up to its first policy."""
    folder = project(tmp_path_factory.mktemp("variants") / "base")
    params = yaml.safe_load((folder / PARAMS).read_text())
    overridden(
        params, {"rollout": {"games": 12, "slots": 24}, "policy": {"steps": 4}, "compare": {"decoding": "greedy"}}
    )
    (folder / PARAMS).write_text(yaml.safe_dump(params))
    run_stages(folder, ("games", "demos", "sft"))
    return folder


@pytest.mark.xdist_group("variants")
@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_runs_from_rollout_to_evaluation(name, fine_tuned, tmp_path):
    folder = tmp_path / name
    shutil.copytree(fine_tuned, folder)
    params = overridden(yaml.safe_load((folder / PARAMS).read_text()), VARIANTS[name])
    if name == "search":
        params["compare"]["decoding"] = "sample"
    (folder / PARAMS).write_text(yaml.safe_dump(params))
    run_stages(folder, ("rollout 1", "label 1", "prm 1", "search 1", "policy 1", "evaluate 1"))
    figures = json.loads((folder / layout.metrics("rollout-1")).read_text())
    if name == "inverse":
        rows = read_table(folder / layout.inverse(1), INVERSE)
        assert rows.num_rows - sum(rows["expert"].to_pylist()) == figures["turns"]
    else:
        labels = read_table(folder / layout.labels(1), LABELS)
        assert labels.num_rows >= figures["turns"]
        assert (labels["visits"].to_numpy() >= 1).all()
    pairs = read_table(folder / layout.pairs(1), PAIRS)
    assert (pairs.num_rows > 0) == (params["policy"]["method"] == "online_dpo")
    searched = read_table(folder / layout.searched(1), EPISODES)
    assert (searched.num_rows > 0) == (params["policy"]["method"] == "expert_iteration")
    evaluated = json.loads((folder / layout.metrics("evaluate-1")).read_text())
    assert len(evaluated["unseen"]) == len(params["evaluate"]["decoding"])
    assert all(row["constrained"] == params["evaluate"]["constrained"] for row in evaluated["unseen"].values())
