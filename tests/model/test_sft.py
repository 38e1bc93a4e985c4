"""Supervised fine-tuning: the loss is the weighted one, it falls, and bad episodes are refused."""

import dataclasses

import numpy as np
import pytest
import torch

from agentprm_core.improve import rft
from agentprm_core.improve.rft import successes
from agentprm_core.improve.sft import SftSettings, sft_objective, sft_row, train_sft
from agentprm_core.training.attention import packed_attention
from agentprm_core.training.packing import pack
from tests.model import text_world

SETTINGS = SftSettings(learning_rate=5e-3, batch_tokens=1024, seed=0, epochs=3)


@pytest.fixture(scope="module")
def renderer():
    return text_world.renderer()


def test_loss_is_the_weighted_sum_of_each_tokens_surprise(renderer):
    model = text_world.small_model(renderer).eval()
    rows = [sft_row(episode, renderer, model, 0.25) for episode in text_world.episodes(3)]
    with packed_attention(model):
        total = sft_objective(model, pack(rows)).total
    slow = 0.0
    for episode in text_world.episodes(3):
        rendered = renderer.episode(episode.turns)
        log_probs = model(input_ids=torch.tensor([rendered.input_ids])).logits[0].log_softmax(-1)
        for at in range(1, len(rendered.input_ids)):
            weight = 1.0 if rendered.is_action[at] else 0.25
            slow -= weight * log_probs[at - 1, rendered.input_ids[at]].item()
    assert total.item() == pytest.approx(slow, rel=1e-5)


def test_training_learns_to_act(renderer, tmp_path):
    model = text_world.small_model(renderer)
    episodes = text_world.episodes(200, skill=1.0)
    settings = dataclasses.replace(SETTINGS, epochs=12)
    _, metrics = train_sft(episodes, renderer, model, settings, tmp_path)
    assert metrics["curve"][-1]["action_loss"] < 0.5 * metrics["curve"][0]["action_loss"]
    assert metrics["rows"] == 200
    assert metrics["resumed_from"] == 0


def test_replayed_turns_are_read_but_not_learnt(renderer):
    model = text_world.small_model(renderer)
    episode = dataclasses.replace(text_world.play(0, 0, skill=0.0), start=2)
    row = sft_row(episode, renderer, model, 0.5)
    end = renderer.episode(episode.turns).action_ends[1]
    assert not row.columns.loss_weight[: end + 1].any()
    assert (row.columns.loss_weight[end + 1 :] > 0).all()


def test_same_seed_same_weights(renderer, tmp_path):
    weights = []
    for run in range(2):
        model, _ = train_sft(
            text_world.episodes(40), renderer, text_world.small_model(renderer), SETTINGS, tmp_path / str(run)
        )
        weights.append(torch.cat([p.detach().flatten() for p in model.parameters()]).numpy())
    np.testing.assert_array_equal(*weights)


def test_no_episodes_is_an_error(renderer, tmp_path):
    with pytest.raises(ValueError, match="no rows to train on"):
        train_sft([], renderer, text_world.small_model(renderer), SETTINGS, tmp_path)


def test_an_episode_longer_than_the_context_is_named(renderer, tmp_path):
    model = text_world.small_model(renderer)
    model.config.max_position_embeddings = 20
    with pytest.raises(ValueError, match=r"episode 0 of game-0000 has \d+ tokens, the model's context is 20"):
        train_sft(text_world.episodes(1), renderer, model, SETTINGS, tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 3}, "give epochs or steps, one of them"),
        ({"optimizer": "sgd"}, "optimizer: 'sgd' is not one of adamw, muon"),
        ({"precision": "float8"}, "precision: 'float8' is not one of float32, bfloat16"),
    ],
)
def test_bad_settings_say_what_is_allowed(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SETTINGS, **change)


def test_each_distinct_success_is_imitated_once():
    won, lost = text_world.play(0, 0, skill=1.0), text_world.play(1, 0, skill=0.0)
    again = dataclasses.replace(won, index=5, seed=9)
    assert won.won
    assert not lost.won
    assert successes([won, lost, again]) == [won]
    with pytest.raises(ValueError, match="none of the 1 episodes was won: nothing to imitate"):
        successes([lost])


def test_what_was_always_won_is_not_imitated_again():
    won, lost = text_world.play(0, 0, skill=1.0), text_world.play(1, 0, skill=0.0)
    lost_too = dataclasses.replace(lost, game_id=won.game_id, index=1)
    sure = dataclasses.replace(won, game_id="sure")
    assert rft.of_undecided_games([won, sure, lost, lost_too]) == [won, lost_too]
    with pytest.raises(ValueError, match="each of the 2 games was won always or never: nothing to imitate; play more"):
        rft.of_undecided_games([sure, lost])


def test_nothing_that_ends_as_demonstrations_do(renderer, monkeypatch):
    ends = iter([[np.array([0.1])], [np.array([0.9])]])
    monkeypatch.setattr(rft, "score_episodes", lambda *_: next(ends))
    with pytest.raises(
        ValueError, match=r"none of the 1 episodes ends as demonstrations do \(a score of 0.9, the highest is 0.1"
    ):
        rft.expert_like([text_world.play(1, 0, skill=0.0)], [text_world.play(0, 0, skill=1.0)], None, renderer, 64)
