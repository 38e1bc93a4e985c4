"""LoRA all the way: fine-tuning, a PRM from a tuned policy, checkpoints, an update that starts from a loaded one."""

import dataclasses

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model

from agentprm_core.improve.online_dpo import DpoSettings, train_online_dpo
from agentprm_core.improve.reference import Reference
from agentprm_core.improve.sft import SftSettings, train_sft
from agentprm_core.policy.models import load_policy, save_policy
from agentprm_core.prm.model import new_prm
from agentprm_core.prm.rows import Labelled
from agentprm_core.prm.score import score_episodes
from agentprm_core.prm.train import PrmSettings, train_prm
from tests.model import text_world

SFT = SftSettings(learning_rate=1e-2, batch_tokens=1024, seed=0, steps=8)


@pytest.fixture(scope="module")
def renderer():
    return text_world.renderer()


@pytest.fixture(scope="module")
def base(renderer, tmp_path_factory):
    """A base model on disk, as a published one would be."""
    folder = tmp_path_factory.mktemp("base")
    save_policy(text_world.small_model(renderer), renderer.tokenizer, folder)
    return folder


@pytest.fixture(scope="module")
def tuned(renderer, base, tmp_path_factory):
    """A checkpoint folder of an adapter trained on that base."""
    model = get_peft_model(load_policy(base).model, LoraConfig(r=4, target_modules=["q_proj", "v_proj", "down_proj"]))
    scratch = tmp_path_factory.mktemp("scratch")
    _, metrics = train_sft(text_world.episodes(60), renderer, model, SFT, scratch)
    assert metrics["curve"][-1]["loss"] < metrics["curve"][0]["loss"]
    folder = tmp_path_factory.mktemp("tuned")
    save_policy(model, renderer.tokenizer, folder)
    return folder


def weights_of(model, kind):
    return {n: p.detach().clone() for n, p in model.named_parameters() if (".lora_" in n) == (kind == "adapter")}


def test_only_the_adapter_is_trained(base, tuned):
    trained, fresh = load_policy(tuned).model, load_policy(base).model
    before = dict(fresh.named_parameters())
    for name, weight in weights_of(trained, "base").items():
        plain = name.removeprefix("base_model.model.").replace(".base_layer", "")
        assert torch.equal(weight, before[plain])
    assert any(w.abs().max() > 0 for n, w in weights_of(trained, "adapter").items() if "lora_B" in n)


def test_a_prm_starts_as_the_tuned_policy_and_comes_back_from_disk(renderer, tuned, tmp_path):
    policy = load_policy(tuned)
    prm = new_prm(policy.model)
    ids = torch.tensor([[1, 5, 7, 9]])
    hidden = [m.get_base_model().model(input_ids=ids).last_hidden_state for m in (policy.model.eval(), prm.eval())]
    torch.testing.assert_close(*hidden)
    episodes = text_world.episodes(40, skill=0.4)
    labelled = [Labelled(e, np.array([float(text_world.is_right(t)) for t in e.turns])) for e in episodes]
    prm, metrics = train_prm(labelled, renderer, prm, PrmSettings(1e-2, 1024, 0, steps=40), tmp_path / "scratch")
    assert metrics["curve"][-1]["loss"] < metrics["curve"][0]["loss"]
    save_policy(prm, renderer.tokenizer, tmp_path / "prm", kind="prm")
    loaded = load_policy(tmp_path / "prm", kind="prm")
    for here, there in zip(
        score_episodes(prm, renderer, episodes, 999), score_episodes(loaded.model, renderer, episodes, 999)
    ):
        np.testing.assert_allclose(here, there, atol=1e-6)


def test_an_update_goes_on_from_a_loaded_adapter(renderer, tuned, tmp_path):
    policy, prm = load_policy(tuned), load_policy(tuned)
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
    policy, first = load_policy(tuned), load_policy(tuned)
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
