"""Every critic and every method runs through its stages, with their profiles, on one tiny set of games."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from agentprm_core.credit.inverse import INVERSE
from agentprm_core.datasets import read_table
from agentprm_core.methods.critics import CRITICS
from agentprm_core.methods.methods import METHODS
from agentprm_core.types import ADVANTAGES, EPISODES, LABELS, PAIRS
from tasks.frame import layout
from tasks.frame.params import PARAMS, validate
from tasks.frame.profile import load_profile, overridden
from tests.flows.test_pipeline_smoke import LOOP, ROOT, project, run_stages, tiny_params

SMALL = {
    "rollout": {"games": 12, "episodes_per_game": 4},
    "critic": {"epochs": 1, "require": "nothing"},
    "method": {"steps": 4},
    "evaluate": {"decoding": ["greedy"]},
}
"""Over the profiles."""
NO_BRANCHES = {"train_states": 0, "random_states": 0}
WINNER = {"preference": "winner", "samples": 4, "refresh_every": 4, "margin": 0.0}
WAYS = ["sample", "greedy", "best_of_2@0.7", "best_trajectory_of_2", "beam_2x2", "lookahead_of_2x1"]

VARIANTS = {
    "history and successes": (
        ["rft"],
        {
            "critic": {"visit_key": "history", "outcome": "signed"},
            "rollout": {"explore": {"resets": 0.5}, "branch": {"random_states": 0}},
            "method": {"replay": 0.25},
        },
    ),
    "shaped and trl": (
        ["online_dpo"],
        {
            "critic": {"shaping": {"kind": "blend", "alpha": 0.25, "reference": None}, "init_from": "scratch"},
            "rollout": {"branch": NO_BRANCHES},
            "model": {"constrained": False},
            "method": WINNER | {"trainer": "trl"},
        },
    ),
    "relative and the first policy": (
        ["relative", "online_dpo"],
        {
            "critic": {"init_from": "sft", "epochs": 8, "margin": 0.0},
            "rollout": {"branch": {"train_states": 24}},
            "method": WINNER | {"anchor": "first"},
        },
    ),
    "promise, grpo and a bonus": (
        ["promise_progress", "grpo"],
        {"critic": {"init_from": "scratch"}, "rollout": {"explore": {"bonus": 0.5}}},
    ),
    "outcomes and gigpo": (["outcome", "gigpo"], {}),
    "playing on and searching": (
        ["playing_on"],
        {"critic": {"continuations": 1}, "method": {"games": 12, "search": "best_of_2"}},
    ),
    "inverse and preferences": (["inverse"], {"method": {"imitation": 0.1, "replay": 0.25}}),
    "inverse and expert-like": (
        ["inverse"],
        {
            "method": {
                "name": "expert_iteration",
                "games": 12,
                "search": "beam_1x2",
                "keeps": "expert_like",
                "replay": 0.0,
                "learning_rate": 1e-3,
                "steps": 4,
                "batch_tokens": 2048,
            }
        },
    ),
    "watched, and every way of playing": (
        ["online_dpo"],
        {
            "method": {
                "samples": 4,
                "monitor": {"every": 2, "episodes": 4, "auditor": True, "games": 2, "stop": False},
            },
            "evaluate": {"decoding": WAYS},
        },
    ),
}
COLLECTED = {
    "expert_iteration": EPISODES,
    "rft": EPISODES,
    "online_dpo": PAIRS,
    "grpo": ADVANTAGES,
    "gigpo": ADVANTAGES,
}


def params_of(name: str) -> dict:
    params, (profiles, changes) = tiny_params(), VARIANTS[name]
    for profile in profiles:
        overridden(params, load_profile(profile, ROOT / "profiles"))
    return overridden(overridden(params, SMALL), changes)


@pytest.fixture(scope="module")
def fine_tuned(tmp_path_factory) -> Path:
    """The project up to its first policy."""
    folder = project(tmp_path_factory.mktemp("variants") / "base")
    run_stages(folder, ("games", "demos", "sft"))
    return folder


def test_every_critic_and_every_method_is_among_them():
    chosen = [validate(params_of(name), name) for name in VARIANTS]
    assert {params.critic.name for params in chosen} == set(CRITICS)
    assert {params.method.name for params in chosen} == set(METHODS) == set(COLLECTED)


@pytest.mark.slow
@pytest.mark.xdist_group("variants")
@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_runs_from_rollout_to_evaluation(name, fine_tuned, tmp_path):
    folder, params = tmp_path / "variant", params_of(name)
    shutil.copytree(fine_tuned, folder)
    (folder / PARAMS).write_text(yaml.safe_dump(params))
    run_stages(folder, (*LOOP, "evaluate 1"))
    played = figures(folder, "rollout-1")
    if params["critic"]["name"] == "inverse":
        rows = read_table(folder / layout.labels(1), INVERSE)
        assert rows.num_rows - sum(rows["expert"].to_pylist()) == played["turns"]
    else:
        labels = read_table(folder / layout.labels(1), LABELS)
        assert labels.num_rows >= played["turns"]
        assert (labels["visits"].to_numpy() >= 1).all()
    assert read_table(folder / layout.collected(1), COLLECTED[params["method"]["name"]]).num_rows > 0
    updated = figures(folder, "policy-1")
    assert updated["steps"] == 4
    if params["method"].get("monitor"):
        assert [look["step"] for look in updated["monitor"]["looks"]] == [0, 2, 4]
    evaluated = figures(folder, "evaluate-1")
    assert set(evaluated["unseen"]) == set(params["evaluate"]["decoding"])
    assert all(row["constrained"] == params["model"]["constrained"] for row in evaluated["unseen"].values())


def figures(folder: Path, stage: str) -> dict:
    return json.loads((folder / layout.metrics(stage)).read_text())
