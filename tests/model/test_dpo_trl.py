"""TRL's DPO on plain rows says what the tree says, and trains."""

import copy
import dataclasses

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model

from agentprm_core.improve import dpo_trl
from agentprm_core.improve.dpo_trl import dpo_trainer, plain_rows, train_dpo_trl
from agentprm_core.improve.online_dpo import DpoSettings
from agentprm_core.improve.pairs import Choice, PairCounts, select_pair
from agentprm_core.improve.preferences import choice_row, dpo_objective
from agentprm_core.improve.proposals import Proposer
from agentprm_core.improve.reference import Reference
from agentprm_core.policy.models import Checkpoint
from agentprm_core.prm.model import new_prm
from agentprm_core.training.attention import packed_attention
from agentprm_core.training.packing import pack
from tests.model import text_world

pytestmark = pytest.mark.slow
SETTINGS = DpoSettings(1e-3, 2000, 0, steps=3, refresh_every=3, samples=4, beta=0.3)


@pytest.fixture(scope="module")
def renderer():
    return text_world.renderer()


def policy_of(model, renderer):
    return Checkpoint(model.eval(), renderer.tokenizer, renderer, "")


def move(model):
    torch.manual_seed(1)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.requires_grad and ".ref." not in name:
                weight.add_(0.05 * torch.randn_like(weight))


@pytest.mark.parametrize("lora", [False, True])
def test_same_loss_on_the_same_pairs(renderer, tmp_path, lora):
    model = text_world.small_model(renderer, seed=3)
    if lora:
        model = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False))
    policy, episodes = policy_of(model, renderer), text_world.episodes(3, skill=0.3)
    rng = np.random.default_rng(0)
    proposer = Proposer(policy, temperature=1.0, constrained=True, max_action_tokens=6, batch_tokens=500)
    drawn = proposer.propose(episodes, 4, [(i,) for i in range(3)])
    pairs = [
        [p for t, d in enumerate(e) if (p := select_pair(Choice(t, tuple(d), tuple(rng.random(4))), 0.0, PairCounts()))]
        for e in drawn
    ]
    rows = plain_rows(episodes, pairs, policy)
    before, ours = copy.deepcopy(model), copy.deepcopy(model)  # TRL rewires the model it is given
    trainer = dpo_trainer(rows, policy, dataclasses.replace(SETTINGS, batch_tokens=10**6), tmp_path)
    for moved in (ours, model):
        move(moved)
    inputs = trainer.data_collator([trainer.train_dataset[i] for i in range(len(rows))])
    theirs = trainer.compute_loss(model.eval(), inputs)
    batch = pack([choice_row(renderer.episode(e.turns), [p.as_choice for p in ps]) for e, ps in zip(episodes, pairs)])
    with packed_attention(before):
        batch = Reference(before).refer(batch, batch.branch >= 0)
    with packed_attention(ours):
        loss = dpo_objective(ours.eval(), batch, SETTINGS.beta).total / batch.columns.loss_weight.sum()
    torch.testing.assert_close(loss, theirs, atol=1e-5, rtol=0)
    assert abs(loss.item() - np.log(2)) > 1e-3


def test_trains(renderer, tmp_path):
    prm = new_prm(text_world.small_model(renderer, seed=1))
    torch.nn.init.normal_(prm.score.weight, std=1.0)
    policy = policy_of(text_world.small_model(renderer), renderer)
    episodes = text_world.episodes(10, skill=0.4)
    _, metrics = train_dpo_trl(episodes, policy, policy_of(prm, renderer), SETTINGS, tmp_path)
    assert metrics["steps"] == 3
    assert metrics["pairs"] > 10
    assert metrics["seconds"] > 0 and metrics["resumed_from"] == 0


def test_no_more_pairs_are_drawn_than_the_steps_read(renderer, tmp_path, monkeypatch):
    monkeypatch.setattr(dpo_trl, "_PORTION", 2)
    prm = new_prm(text_world.small_model(renderer, seed=1))
    torch.nn.init.normal_(prm.score.weight, std=1.0)
    policy = policy_of(text_world.small_model(renderer), renderer)
    episodes, settings = text_world.episodes(10, skill=0.4), dataclasses.replace(SETTINGS, batch_tokens=1)  # a row each
    _, metrics = train_dpo_trl(episodes, policy, policy_of(prm, renderer), settings, tmp_path)
    most = 2 * max(len(episode.turns) for episode in episodes)
    assert SETTINGS.steps <= metrics["pairs"] <= SETTINGS.steps + most


def test_imitation_is_not_on_offer(renderer, tmp_path):
    policy = policy_of(text_world.small_model(renderer), renderer)
    settings = dataclasses.replace(SETTINGS, imitation=0.5)
    with pytest.raises(ValueError, match="set imitation to 0"):
        train_dpo_trl([], policy, policy, settings, tmp_path)


def test_fresh_pairs_are_not_on_offer(renderer, tmp_path):
    policy = policy_of(text_world.small_model(renderer), renderer)
    settings = dataclasses.replace(SETTINGS, refresh_every=1)
    with pytest.raises(ValueError, match="TRL's DPO draws its pairs once"):
        train_dpo_trl([], policy, policy, settings, tmp_path)
