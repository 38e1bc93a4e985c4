"""Advantage-weighted updates: the clipped loss against plain rows, and that good turns become likelier."""

import copy
import dataclasses

import numpy as np
import pytest
import torch

from agentprm_core.improve.policy_gradient import (
    Experience,
    GradientSettings,
    RowWriter,
    gradient_objective,
    train_policy_gradient,
)
from agentprm_core.improve.reference import Reference
from agentprm_core.policy.models import Checkpoint
from agentprm_core.training.attention import packed_attention
from agentprm_core.training.packing import pack
from tests.model import text_world

SETTINGS = GradientSettings(learning_rate=3e-3, batch_tokens=1024, seed=0, steps=10)


@pytest.fixture(scope="module")
def renderer():
    return text_world.renderer()


def policy_of(renderer):
    return Checkpoint(text_world.small_model(renderer).eval(), renderer.tokenizer, renderer, "")


def action_log_probs(model, renderer, episode):
    """(T,) log π(a_t | s_t)."""
    rendered = renderer.episode(episode.turns)
    ids = rendered.input_ids
    each = model(input_ids=torch.tensor([ids])).logits[0, :-1].log_softmax(-1)
    return torch.stack([
        each[range(start - 1, end), ids[start : end + 1]].sum()
        for start, end in zip(rendered.action_starts, rendered.action_ends)
    ])  # fmt: skip


def test_surrogate_is_that_of_plain_rows(renderer):
    policy = policy_of(renderer)
    before = copy.deepcopy(policy.model)
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in policy.model.parameters():
            weight.add_(0.05 * torch.randn_like(weight))
    episodes = text_world.episodes(4, skill=0.3)
    episodes[0] = dataclasses.replace(episodes[0], start=1)
    advantages = [np.random.default_rng(i).normal(size=e.length) for i, e in enumerate(episodes)]
    batch = pack([RowWriter(policy).row(e, a) for e, a in zip(episodes, advantages)])
    batch = Reference(before).refer(batch, batch.columns.decided > 0)
    with packed_attention(policy.model):
        losses = gradient_objective(policy.model, batch, beta=0.0, clip=0.2)
    expected = 0.0
    for episode, advantage in zip(episodes, advantages):
        ratio = (
            (action_log_probs(policy.model, renderer, episode) - action_log_probs(before, renderer, episode))
            .exp()
            .detach()
            .numpy()
        )
        clipped = np.clip(ratio, 0.8, 1.2)
        expected -= np.minimum(ratio * advantage, clipped * advantage)[episode.start :].sum()
    assert losses.total.item() == pytest.approx(expected, abs=1e-4)
    assert losses.metrics["clipped"][0] > 0
    assert batch.columns.loss_weight.sum() == sum(e.length for e in episodes) - 1


def test_episodes_without_an_advantage_have_no_gradient(renderer):
    """So ``keeps: undecided`` may leave them out."""
    policy = policy_of(renderer)
    episodes = text_world.episodes(4, skill=0.5)
    advantages = [np.full(e.length, a) for e, a in zip(episodes, (0.5, 0.0, -0.5, 0.0))]
    rows = [RowWriter(policy, "token").row(e, a) for e, a in zip(episodes, advantages)]

    def gradient(kept):
        batch = pack(kept)
        batch = Reference(policy.model).refer(batch, batch.columns.decided > 0)
        policy.model.zero_grad()
        with packed_attention(policy.model):
            gradient_objective(policy.model, batch, beta=0.0, clip=0.2, level="token").total.backward()
        return torch.cat([p.grad.flatten() for p in policy.model.parameters() if p.grad is not None])

    whole, some = gradient(rows), gradient([rows[0], rows[2]])
    assert some.abs().max() > 0
    torch.testing.assert_close(whole, some, rtol=1e-4, atol=1e-6)


def test_good_turns_become_likelier_and_bad_ones_less_likely(renderer, tmp_path):
    policy = policy_of(renderer)
    episodes = text_world.episodes(40, skill=0.5)
    advantages = [np.where([t.action.startswith("take") for t in e.turns], 1.0, -1.0) for e in episodes]
    before = [action_log_probs(policy.model, renderer, e).detach().numpy() for e in episodes]
    _, metrics = train_policy_gradient(Experience(episodes, advantages), policy, SETTINGS, tmp_path)
    after = [action_log_probs(policy.model, renderer, e).detach().numpy() for e in episodes]
    change, advantage = np.concatenate(after) - np.concatenate(before), np.concatenate(advantages)
    assert change[advantage > 0].mean() > 0 > change[advantage < 0].mean()
    assert metrics["curve"][-1]["kl"] > 0


def test_the_kl_holds_the_policy_back(renderer, tmp_path):
    episodes = text_world.episodes(40, skill=0.5)
    advantages = [np.where([t.action.startswith("take") for t in e.turns], 1.0, -1.0) for e in episodes]
    moved = []
    for beta in (0.0, 10.0):
        settings = dataclasses.replace(SETTINGS, beta=beta)
        experience = Experience(episodes, advantages)
        _, metrics = train_policy_gradient(experience, policy_of(renderer), settings, tmp_path / str(beta))
        moved.append(metrics["curve"][-1]["kl"])
    assert moved[1] < 0.5 * moved[0]


def test_advantages_must_be_one_a_turn(renderer, tmp_path):
    episode = text_world.play(0, 0)
    with pytest.raises(ValueError, match=rf"episode 0 of game-0000: 1 advantages for {episode.length} turns"):
        train_policy_gradient(Experience([episode], [np.zeros(1)]), policy_of(renderer), SETTINGS, tmp_path)
