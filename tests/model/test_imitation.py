"""The loss on demonstrations against a slow one, episode by episode, and what is told of it."""

import numpy as np
import pytest
import torch

from agentprm_core.policy.models import Checkpoint, save_checkpoint
from benchmarks import imitation
from tests.model import text_world


@pytest.fixture(scope="module")
def renderer():
    return text_world.renderer()


def test_losses_are_those_of_each_episode_alone(renderer):
    policy = Checkpoint(text_world.small_model(renderer), renderer.tokenizer, renderer, "none")
    episodes = text_world.episodes(4, skill=0.5)
    found = imitation.losses(policy, episodes)
    actions = iter(found.actions)
    for episode, (nats, tokens, likeliest, seen_nats, seen) in zip(episodes, found.episodes):
        rendered = renderer.episode(episode.turns)
        ids = torch.tensor([rendered.input_ids])
        with torch.no_grad():
            log_prob_LV = policy.model(input_ids=ids).logits[0, :-1].double().log_softmax(-1)
        nll_L = -log_prob_LV.gather(1, ids[0, 1:, None])[:, 0].numpy()
        action_L = np.array(rendered.is_action[1:], dtype=bool)
        right_L = (log_prob_LV.argmax(-1) == ids[0, 1:]).numpy()
        assert tokens == action_L.sum() and seen == (~action_L).sum() and likeliest == right_L[action_L].sum()
        assert nats == pytest.approx(nll_L[action_L].sum(), rel=1e-4)
        assert seen_nats == pytest.approx(nll_L[~action_L].sum(), rel=1e-4)
        for start, end in zip(rendered.action_starts, rendered.action_ends):
            whole = slice(start - 1, end)  # an entry is of the token after it
            of_action, action_tokens, of_likeliest = next(actions)
            assert (action_tokens, of_likeliest) == (end + 1 - start, right_L[whole].sum())
            assert of_action == pytest.approx(nll_L[whole].sum(), rel=1e-4)
    assert next(actions, None) is None


@pytest.mark.parametrize(
    ("action", "word"),
    [("take cd 1", "take"), ("click[b07]", "click"), ("search[a b]", "search"), ("3 + 4", "(no word)")],
)
def test_a_first_word_ends_where_its_letters_do(action, word):
    assert imitation.first_word(action) == word


def test_actions_are_told_by_their_first_word():
    episodes = text_world.episodes(4, skill=0.5)
    words = [turn.action.split()[0] for episode in episodes for turn in episode.turns]
    actions = np.array([[1.5, 3, 3] if number % 2 else [0.5, 2, 1] for number in range(len(words))])
    told = imitation.by_word(actions, episodes)
    assert {word: figures["actions"] for word, figures in told.items()} == {word: words.count(word) for word in words}
    for word, figures in told.items():
        of = [tuple(action) for action, other in zip(actions, words) if other == word]
        assert figures["right"] == pytest.approx(of.count((1.5, 3, 3)) / len(of))
        assert figures["loss"] == pytest.approx(sum(nats for nats, _, _ in of) / sum(tokens for _, tokens, _ in of))


def test_a_policy_held_against_itself_differs_by_nothing_and_a_worse_one_by_what_it_is_worse():
    draws = np.random.default_rng(0)
    tokens = draws.integers(5, 20, 200)
    first = np.stack((tokens * 0.5, tokens, tokens // 2, tokens * 2.0, tokens), 1).astype(float)
    alone = imitation.told(first, None, 1)
    assert alone["action_loss"] == alone["low"] == alone["high"] == pytest.approx(0.5)
    assert alone["observation_loss"] == 2 and alone["games"] == 200 and alone["tokens"] == tokens.sum()
    assert "v_first" not in alone
    assert imitation.told(first, first, 1)["v_first"] == 0
    worse = first.copy()
    worse[:, 0] += draws.normal(0.1, 0.05, 200) * tokens
    row = imitation.told(worse, first, 1)
    assert 0.08 < row["v_first_low"] < row["v_first"] < row["v_first_high"] < 0.12


def test_policies_of_different_worlds_are_one_line(renderer, tmp_path, monkeypatch):
    words = ["imitation", "--games", str(tmp_path)]
    for world in ("arithmetic", "textcraft"):
        save_checkpoint(text_world.small_model(renderer), renderer.tokenizer, tmp_path / world, world=world)
        words += ["--policy", f"{world}={tmp_path / world}"]
    monkeypatch.setattr("sys.argv", words)
    with pytest.raises(SystemExit, match=r"^imitation: --policy: of different worlds, arithmetic, textcraft; compare"):
        imitation.main()
