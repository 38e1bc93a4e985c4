"""A campaign without demonstrations: the first policy is the published model, in a world that has no expert."""

import json
from dataclasses import replace

import pytest
from transformers import LlamaConfig, LlamaForCausalLM

from agentprm_core.datasets import read_table
from agentprm_core.policy.models import load_checkpoint, without_adapter
from agentprm_core.types import EPISODES
from tasks import demos, games, rollout, sft
from tasks.commands.plan_traffic import traffic_of
from tasks.frame import layout
from tasks.frame.params import ParamsError, load_params, validate
from tasks.frame.stage import run_stage
from tests.chat import byte_tokenizer
from tests.core.test_check_world import SPEC as STAIRS
from tests.data.project import ROOT, raw_params, write_project

ALONE = replace(STAIRS, expert=None)
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture
def model(tmp_path):
    """A published chat model of random weights."""
    tokenizer = byte_tokenizer(TEMPLATE)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=len(tokenizer), max_position_embeddings=4096, **sizes)
    LlamaForCausalLM(config).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def asked(model, **changes) -> dict:
    lora = {"rank": 2, "alpha": 4, "modules": ["q_proj"]}
    spoken = {"revision": None, "context": 4096, "max_action_tokens": 8, "constrained": True, "lora": lora}
    branch = {"train_states": 0, "random_states": 0, "validation_states": 2, "continuations": 1}
    few = {
        "env": {"world": "tests.data.test_no_demonstrations:ALONE", "code": str(ROOT / "tests"), "max_turns": 6},
        "games": {"published": None, "train": 6, "seen": 2, "unseen": 2},
        "demos": {"games": 0},
        "model": {"source": str(model), **spoken, "reason_tokens": 0, "gradient_checkpointing": False},
        "rollout": {"games": 6, "episodes_per_game": 4, "validation_share": 0.5, "branch": branch},
        "critic": {"likelihood": 0.0, "init_from": "policy"},
        "method": {"games": 6},
        "evaluate": {"decoding": ["greedy"]},
    }
    return raw_params("smoke", **{name: few.get(name, {}) | changes.get(name, {}) for name in few | changes})


def test_the_first_policy_is_the_published_model(model, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.chdir(tmp_path)
    write_project(tmp_path, asked(model))
    run_stage("games", games.work, iterated=False, arguments=(), gated=True)
    run_stage("demos", demos.work, iterated=False, arguments=(), gated=True)
    run_stage("sft", sft.work, iterated=False, arguments=())
    assert read_table(layout.DEMOS, EPISODES).num_rows == 0
    before, after = load_checkpoint(model), load_checkpoint(layout.policy(0))
    told = without_adapter(after.model).state_dict()
    for name, weights in before.model.state_dict().items():
        found = told.get(name, told.get(name.replace("q_proj.", "q_proj.base_layer.")))
        assert weights.equal(found), name
    assert json.loads((layout.policy(0) / "agentprm.json").read_text())["world"] == load_params().env.world
    run_stage("rollout", rollout.work, iterated=True, arguments=("--iteration", "1"), gated=True)
    assert json.loads(layout.metrics("rollout-1").read_text())["demonstrated"] == 0


def test_a_plan_without_an_expert_counts_random_commands(model):
    traffic = traffic_of(validate(asked(model), "params.yaml"))
    assert traffic.turns > 3 and traffic.reply_tokens > 2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model": {"source": "scratch"}}, "demos.games: 0 is not allowed: at least 1 with model.source scratch"),
        ({"critic": {"name": "inverse"}}, "critic.name: 'inverse' is not allowed: another critic with demos.games 0"),
        (
            {"demos": {"games": 2}},
            "demos.games: 2 is not allowed: 0, with a published model (model.source): stairs has",
        ),
        ({"method": {"name": "dagger"}}, "method.name: 'dagger' is not allowed: another method: stairs has no expert"),
        ({"method": {"replay": 0.5}}, "method.replay: 0.5 is not allowed: 0 with demos.games 0"),
    ],
)
def test_what_needs_demonstrations_is_refused_by_name(model, changes, said):
    raw = asked(model)
    whole = {
        "scratch": raw_params("smoke")["model"],
        "inverse": raw_params("smoke", "inverse")["critic"] | {"likelihood": 0.0},
        "dagger": raw_params("smoke", "dagger")["method"] | {"replay": 0.0},
    }
    for section, values in changes.items():
        named = values.get("source") or values.get("name")
        raw[section] = whole.get(named) or raw[section] | values
    with pytest.raises(ParamsError) as refused:
        validate(raw, "params.yaml")
    assert said in str(refused.value)
