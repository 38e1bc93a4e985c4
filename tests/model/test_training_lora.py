"""LoRA all the way: fine-tuning, a PRM from a tuned policy, checkpoints, an update that starts from a loaded one."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from peft import LoraConfig, get_peft_model

from agentprm_core.improve.online_dpo import DpoSettings, train_online_dpo
from agentprm_core.improve.reference import Reference
from agentprm_core.improve.sft import SftSettings, train_sft
from agentprm_core.policy.models import load_checkpoint, new_model, save_checkpoint
from agentprm_core.policy.starting import PublishedModel, starting_policy
from agentprm_core.prm.model import new_prm
from agentprm_core.prm.rows import Labelled
from agentprm_core.prm.score import score_episodes
from agentprm_core.prm.train import PrmSettings, train_prm
from agentprm_core.worlds.alfworld.spec import ALFWORLD
from tasks.frame.params import PARAMS, validate
from tasks.frame.profile import load_profile, overridden
from tests.chat import CHATML, byte_tokenizer
from tests.model import text_world

ROOT = Path(__file__).parents[2]
SFT = SftSettings(learning_rate=1e-2, batch_tokens=1024, seed=0, steps=8)


@pytest.fixture(scope="module")
def renderer():
    return text_world.renderer()


@pytest.fixture(scope="module")
def base(renderer, tmp_path_factory):
    """A base model on disk, as a published one would be."""
    folder = tmp_path_factory.mktemp("base")
    save_checkpoint(text_world.small_model(renderer), renderer.tokenizer, folder)
    return folder


@pytest.fixture(scope="module")
def tuned(renderer, base, tmp_path_factory):
    """A checkpoint folder of an adapter trained on that base."""
    model = get_peft_model(
        load_checkpoint(base).model, LoraConfig(r=4, target_modules=["q_proj", "v_proj", "down_proj"])
    )
    scratch = tmp_path_factory.mktemp("scratch")
    _, metrics = train_sft(text_world.episodes(60), renderer, model, SFT, scratch)
    assert metrics["curve"][-1]["loss"] < metrics["curve"][0]["loss"]
    folder = tmp_path_factory.mktemp("tuned")
    save_checkpoint(model, renderer.tokenizer, folder)
    return folder


def weights_of(model, kind):
    return {n: p.detach().clone() for n, p in model.named_parameters() if (".lora_" in n) == (kind == "adapter")}


def test_only_the_adapter_is_trained(base, tuned):
    trained, fresh = load_checkpoint(tuned).model, load_checkpoint(base).model
    before = dict(fresh.named_parameters())
    for name, weight in weights_of(trained, "base").items():
        plain = name.removeprefix("base_model.model.").replace(".base_layer", "")
        assert torch.equal(weight, before[plain])
    assert any(w.abs().max() > 0 for n, w in weights_of(trained, "adapter").items() if "lora_B" in n)


def test_a_prm_starts_as_the_tuned_policy_and_comes_back_from_disk(renderer, tuned, tmp_path):
    policy = load_checkpoint(tuned)
    prm = new_prm(policy.model)
    ids = torch.tensor([[1, 5, 7, 9]])
    hidden = [m.get_base_model().model(input_ids=ids).last_hidden_state for m in (policy.model.eval(), prm.eval())]
    torch.testing.assert_close(*hidden)
    episodes = text_world.episodes(40, skill=0.4)
    labelled = [Labelled(e, np.array([float(text_world.is_right(t)) for t in e.turns])) for e in episodes]
    prm, metrics = train_prm(labelled, renderer, prm, PrmSettings(1e-2, 1024, 0, steps=40), tmp_path / "scratch")
    assert metrics["curve"][-1]["loss"] < metrics["curve"][0]["loss"]
    save_checkpoint(prm, renderer.tokenizer, tmp_path / "prm", kind="prm")
    loaded = load_checkpoint(tmp_path / "prm", kind="prm")
    for here, there in zip(
        score_episodes(prm, renderer, episodes, 999), score_episodes(loaded.model, renderer, episodes, 999)
    ):
        np.testing.assert_allclose(here, there, atol=1e-6)


def test_an_update_goes_on_from_a_loaded_adapter(renderer, tuned, tmp_path):
    policy, prm = load_checkpoint(tuned), load_checkpoint(tuned)
    before = weights_of(policy.model, "adapter")
    scorer = new_prm(prm.model)
    torch.nn.init.normal_(scorer.get_base_model().score.modules_to_save["default"].weight, std=1.0)
    settings = DpoSettings(1e-2, 600, 0, steps=3, samples=4, beta=0.1, warmup=0.0)
    _, metrics = train_online_dpo(
        text_world.episodes(30, skill=0.4), policy, dataclasses.replace(prm, model=scorer.eval()), settings, tmp_path
    )
    after = weights_of(policy.model, "adapter")
    assert metrics["curve"][0]["kl"] == pytest.approx(0, abs=1e-5)  # the anchor is the adapter as loaded
    assert any(not torch.equal(before[name], after[name]) for name in before)


def test_the_anchor_may_be_another_adapter(renderer, tuned):
    """π₀'s adapter in place of the one that has moved on; the base is shared and stays."""
    policy, first = load_checkpoint(tuned), load_checkpoint(tuned)
    with torch.no_grad():
        for weight in weights_of(policy.model, "adapter"):
            policy.model.get_parameter(weight).add_(0.1)
    reference = Reference(policy.model, first.model)
    assert reference.weights.keys() == weights_of(policy.model, "adapter").keys()
    ids = torch.tensor([[1, 5, 7, 9]])
    moved = policy.model(input_ids=ids).logits
    with reference.in_place():
        torch.testing.assert_close(policy.model(input_ids=ids).logits, first.model(input_ids=ids).logits)
    assert torch.equal(policy.model(input_ids=ids).logits, moved)
    assert (moved - first.model(input_ids=ids).logits).abs().max() > 0.01


def test_the_profile_of_a_published_model_trains_an_adapter_of_it(tmp_path):
    """A tiny chat model in the place of the one of 3B: the profile's parameters, an adapter as π₀, one as its PRM."""
    tokenizer = byte_tokenizer(CHATML)
    tiny = new_model(tokenizer, width=64, layers=1, heads=2, kv_heads=2, context=8192, seed=1)
    save_checkpoint(tiny, tokenizer, tmp_path / "published")
    here = {"model": {"source": str(tmp_path / "published")}, "compute": {"device": "cpu"}}
    raw = overridden(yaml.safe_load((ROOT / PARAMS).read_text()), load_profile("llama3b", ROOT / "profiles"))
    assert validate(raw, "llama3b").model.lora.rank == 32
    params = validate(overridden(raw, here), "llama3b")
    policy = starting_policy(params.model, [], ALFWORLD, device="cpu", seed=params.seed)
    adapter = policy.model.peft_config["default"]
    assert (adapter.r, adapter.lora_alpha, adapter.target_modules) == (32, 64, set(params.model.lora.modules))
    assert {name for name, p in policy.model.named_parameters() if p.requires_grad} == {
        name for name, _ in policy.model.named_parameters() if ".lora_" in name
    }
    settings = SftSettings(params.sft.learning_rate, 4096, 0, steps=2, gradient_checkpointing=True, warmup=0.0)
    model, _ = train_sft(text_world.episodes(4), policy.renderer, policy.model, settings, tmp_path / "scratch")
    assert all(weight.abs().max() > 0 for name, weight in weights_of(model, "adapter").items() if "lora_B" in name)
    save_checkpoint(model, tokenizer, tmp_path / "policy")
    prm = new_prm(load_checkpoint(tmp_path / "policy").model)
    assert any(".lora_" in name for name, p in prm.named_parameters() if p.requires_grad)


def test_without_an_adapter_all_weights_are_trained(base):
    published = PublishedModel(str(base), None, 256, 8, True, lora=None, reason_tokens=0, gradient_checkpointing=False)
    model = starting_policy(published, [], ALFWORLD, device="cpu", seed=0).model
    assert not hasattr(model, "peft_config")
    assert all(p.requires_grad for p in model.parameters())
