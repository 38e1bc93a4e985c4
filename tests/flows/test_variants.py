"""Every critic and every method runs through its stages, with their profiles, on one tiny set of games."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from agentprm_core.credit.expert_and_learner import INVERSE
from agentprm_core.datasets import read_table
from agentprm_core.methods.critics import CRITICS
from agentprm_core.methods.methods import METHODS
from agentprm_core.methods.ppo import CREDITED
from agentprm_core.methods.tree_grpo import TREES
from agentprm_core.policy.models import new_model, save_checkpoint
from agentprm_core.types import ADVANTAGES, EPISODES, LABELS, PAIRS
from tasks.frame import layout
from tasks.frame.params import PARAMS, validate
from tasks.frame.profile import load_profile, overridden
from tests.chat import CHATML, byte_tokenizer
from tests.flows.test_pipeline_smoke import LOOP, ROOT, project, run_stages, tiny_params

FIRST = {"env": {"world": "alfworld-remembering"}, "games": {"train": 700}}
"""Every training game has a demonstration, which rollouts that start in states of these need."""
SMALL = FIRST | {
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
    "gigpo with a PRM, online": (["gigpo"], {"method": {"alone": "prm", "refresh": {"every": 2, "games": 4}}}),
    "dagger": (["dagger"], {}),
    "loop": (["loop"], {"method": {"refresh": {"every": 2, "games": 4}}}),
    "ppo": (["ppo"], {"method": {"refresh": {"every": 2, "games": 4}}}),
    "istar": (["istar"], {"method": {"implicit": {"steps": 3}, "refresh": {"every": 2, "games": 12}}}),
    "trees": (["tree_grpo"], {"method": {"rounds": 2, "refresh": {"every": 2, "games": 4}}}),
    "inverse of what was lost": (["inverse"], {"critic": {"negatives": "lost"}}),
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
    "dagger": EPISODES,
    "online_dpo": PAIRS,
    "grpo": ADVANTAGES,
    "gigpo": ADVANTAGES,
    "loop": ADVANTAGES,
    "istar": ADVANTAGES,
    "ppo": CREDITED,
    "tree_grpo": TREES,
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
    (folder / PARAMS).write_text(yaml.safe_dump(overridden(tiny_params(), FIRST), sort_keys=False))
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
        learnt = rows.num_rows - sum(rows["expert"].to_pylist())
        assert 0 < learnt < played["turns"] if params["critic"]["negatives"] == "lost" else learnt == played["turns"]
    else:
        labels = read_table(folder / layout.labels(1), LABELS)
        assert labels.num_rows >= played["turns"]
        least, resets = labels["visits"].to_numpy().min(), "resets" in (params["rollout"].get("explore") or {})
        assert least == 0 if resets else least >= 1  # a turn that is replayed was not decided: no visit
    assert read_table(folder / layout.collected(1), COLLECTED[params["method"]["name"]]).num_rows > 0
    updated = figures(folder, "policy-1")
    assert updated["steps"] == 4 and updated["tokens_trained"] > 0
    assert (updated["episodes_played"] > 0) == bool(params["method"].get("refresh"))
    if params["method"].get("monitor"):
        assert [look["step"] for look in updated["monitor"]["looks"]] == [0, 2, 4]
    evaluated = figures(folder, "evaluate-1")
    assert set(evaluated["unseen"]) == set(params["evaluate"]["decoding"])
    assert all(row["constrained"] == params["model"]["constrained"] for row in evaluated["unseen"].values())


PUBLISHED = {
    "compute": {"device": "cpu", "precision": "float32", "cache_mb": 512, "slots": 16},
    "env": {"world": "babyai", "code": "agentprm_core/worlds/babyai", "max_turns": 4},
    "games": {"train": 24, "seen": 2, "unseen": 2},
    "demos": {"games": 4},
    "model": {"max_action_tokens": 64, "constrained": True, "reason_tokens": 0, "lora": {"rank": 2, "alpha": 4}},
    "sft": {"epochs": 1, "batch_tokens": 16384},
    "rollout": {"games": 24, "episodes_per_game": 4, "branch": {"validation_states": 4, "continuations": 2}},
    "critic": {"batch_tokens": 16384, "require": "nothing"},
    "method": {"steps": 2, "batch_tokens": 16384, "margin": 0.0, "trainer": "trl"},
    "evaluate": {"decoding": ["greedy"]},
}
"""Over the profile of a published model."""


@pytest.mark.slow
@pytest.mark.xdist_group("variants")
def test_a_published_chat_model_with_an_adapter_runs_from_games_to_evaluation(tmp_path):
    tokenizer = byte_tokenizer(CHATML)
    model = new_model(tokenizer, width=16, layers=1, heads=2, kv_heads=1, context=16384, seed=1)
    save_checkpoint(model, tokenizer, tmp_path / "published")
    params = overridden(tiny_params(), load_profile("llama3b", ROOT / "profiles"))
    params = overridden(params, PUBLISHED)
    params["model"]["source"] = str(tmp_path / "published")
    folder = project(tmp_path / "project")
    (folder / PARAMS).write_text(yaml.safe_dump(params))
    run_stages(folder, ("games", "demos", "sft", *LOOP, "evaluate 1"))
    assert (folder / layout.policy(1) / "adapter_model.safetensors").exists()
    assert (folder / layout.prm(1) / "adapter_model.safetensors").exists()
    assert figures(folder, "policy-1")["steps"] == 2
    assert read_table(folder / layout.collected(1), PAIRS).num_rows > 0
    assert set(figures(folder, "evaluate-1")["unseen"]) == {"greedy"}


def figures(folder: Path, stage: str) -> dict:
    return json.loads((folder / layout.metrics(stage)).read_text())
