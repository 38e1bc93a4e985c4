"""The sampler says what the plain model says, whatever is decoded beside it, and only what is allowed."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agentprm_core.policy import slot_attention
from agentprm_core.policy.models import new_model
from agentprm_core.policy.runner import CachedModel, Extension, slots_within
from agentprm_core.policy.sampler import Sampler
from agentprm_core.policy.trie import Unspeakable
from agentprm_core.rollout import rollout
from agentprm_core.seeding import uniforms
from tests.model import toy

PLAY = {"episodes_per_game": 2, "max_turns": 12, "context": 512, "max_action_tokens": 8, "seed": 3}
GAMES = [toy.game(n) for n in range(12)]


def played(policy, engine, **changes):
    settings = {"temperature": 1.0, "constrained": True, "slots": 8, **PLAY, **changes}
    return sorted(rollout(policy, GAMES, world_name=engine, **settings), key=lambda e: (e.game_id, e.index))


@pytest.mark.parametrize("slots", [1, 5, 24])
def test_greedy_free_decoding_is_plain_generate(toy_engine, slots):
    policy = toy.policy()
    episodes = played(policy, toy_engine, temperature=0.0, constrained=False, slots=slots, episodes_per_game=1)
    for episode in episodes:
        for t in range(episode.length):
            rendered = policy.renderer.episode(episode.turns[: t + 1])
            history = rendered.input_ids[: rendered.action_starts[t]]
            written = policy.model.generate(
                torch.tensor([history]), do_sample=False, max_new_tokens=8, eos_token_id=policy.renderer.stop_token
            )[0, len(history) :].tolist()
            assert policy.renderer.parse(written)[1] == episode.turns[t].action


def test_greedy_constrained_decoding_is_the_best_allowed_token_at_each_step(toy_engine):
    policy = toy.policy()
    for episode in played(policy, toy_engine, temperature=0.0, episodes_per_game=1)[:4]:
        for t, turn in enumerate(episode.turns):
            rendered = policy.renderer.episode(episode.turns[: t + 1])
            written = rendered.input_ids[: rendered.action_starts[t]]
            spelt = [[*policy.renderer.action(command)] for command in turn.admissible]
            said, log_prob = [], 0.0
            while said not in spelt:
                allowed = sorted({s[len(said)] for s in spelt if s[: len(said)] == said})
                log_probs = policy.model(torch.tensor([written + said])).logits[0, -1, allowed].log_softmax(-1)
                said.append(allowed[log_probs.argmax()])
                log_prob += log_probs.max().item()
            assert turn.action == turn.admissible[spelt.index(said)]
            assert episode.extra["log_probs"][t] == pytest.approx(log_prob, abs=1e-4)


@pytest.mark.parametrize("constrained", [True, False])
def test_an_episode_is_the_same_in_any_batch(toy_engine, constrained):
    policy = toy.policy()
    alone = played(policy, toy_engine, slots=1, constrained=constrained)
    for slots in (3, 16):
        assert played(policy, toy_engine, slots=slots, constrained=constrained) == alone
    assert len({tuple(t.action for t in e.turns) for e in alone}) > len(GAMES), "episodes of a game should differ"


def test_constrained_decoding_only_says_admissible_commands(toy_engine):
    turns = [t for e in played(toy.policy(), toy_engine, temperature=2.0) for t in e.turns]
    assert len(turns) > 100
    assert all(turn.valid and turn.action in turn.admissible for turn in turns)


def sampler(policy, **changes):
    settings = {"slots": 4, "context": 512, "temperature": 1.0, "constrained": True, "max_action_tokens": 8}
    return Sampler(policy, **{**settings, **changes})


def decide(player, seat, samples):
    player.ask(seat, samples)
    while True:
        for decided, decisions in player.tick():
            assert decided == seat
            return decisions


@pytest.mark.parametrize("constrained", [True, False])
def test_many_samples_of_one_state_follow_its_distribution(constrained):
    policy = toy.policy()
    seen = toy.ToyWorld().reset(toy.game(1))
    player = sampler(policy, constrained=constrained, max_action_tokens=8 if constrained else 2)
    seat = player.open(seed=11)
    player.see(seat, seen.text, seen.admissible)
    decisions = decide(player, seat, 4000)
    assert sum(d.count for d in decisions) == 4000
    assert len({d.action for d in decisions}) == len(decisions) or not constrained
    for decision in decisions[:5]:
        p = math.exp(decision.log_prob)
        assert decision.count / 4000 == pytest.approx(p, abs=5 * math.sqrt(p / 4000) + 1e-3)


def test_sampling_many_leaves_the_conversation_as_it_was():
    policy, world = toy.policy(), toy.ToyWorld()
    seen = world.reset(toy.game(1))
    a, b = sampler(policy, temperature=0.0), sampler(policy, temperature=0.0)
    after = world.step(seen.admissible[0])
    texts = []
    for player, before in ((a, (9, 3, 1)), (b, ())):
        seat = player.open(seed=5)
        player.see(seat, seen.text, seen.admissible)
        for samples in before:
            decide(player, seat, samples)
        player.tell(seat, seen.admissible[0])
        player.see(seat, after.text, after.admissible)
        texts.append(decide(player, seat, 1))
    assert texts[0][0].action == texts[1][0].action
    assert texts[0][0].log_prob == pytest.approx(texts[1][0].log_prob, abs=1e-4)


def test_forks_share_what_was_read_and_go_their_own_ways():
    policy, world = toy.policy(), toy.ToyWorld()
    seen = world.reset(toy.game(1))
    player = sampler(policy, temperature=3.0, slots=13)
    trunk = player.open(seed=5)
    player.see(trunk, seen.text, seen.admissible)
    first = decide(player, trunk, 1)[0].action
    read = player.tokens_read
    forks = [player.fork(trunk, seed) for seed in range(12)]
    actions = [decide(player, fork, 1)[0].action for fork in forks]
    assert player.tokens_read - read < 12 * read / 2, "the history is not read again"
    alone = sampler(policy, temperature=3.0)
    seat = alone.open(seed=7)
    alone.see(seat, seen.text, seen.admissible)
    assert decide(alone, seat, 1)[0].action == actions[7], "a fork is a conversation of its own seed"
    assert len(set(actions)) > 1
    player.tell(trunk, first)
    assert player.see(trunk, world.step(first).text, seen.admissible), "and leaves the one it came from alone"


def test_a_lone_command_needs_no_model_call():
    player = sampler(toy.policy())
    seat = player.open(seed=0)
    player.see(seat, "You see a cabinet 1.", ("look",))
    assert decide(player, seat, 1)[0].action == "look"
    assert player.tokens_read == 0


def test_forced_tokens_are_not_decoded():
    """``go to cabinet 1`` or ``take mug 1 from cabinet 1``: one decision, so one call."""
    player = sampler(toy.policy())
    seat = player.open(seed=0)
    player.see(seat, "You see a cabinet 1.", ("go to cabinet 1", "take mug 1 from cabinet 1"))
    player.ask(seat)
    assert len(player.tick()) == 1


def test_replies_that_come_again_are_read_at_once_until_the_last_conversation_ends():
    player = sampler(toy.policy(), slots=2, constrained=False, temperature=0.0)

    def calls():
        seat = player.open(0)
        player.see(seat, "you are in a room", ())
        player.ask(seat)
        ticks = 1
        while not player.tick():
            ticks += 1
        player.close(seat)
        return ticks

    alone = [calls() for _ in range(40)]
    assert set(alone) == {alone[0]}, "nobody else is there: nothing is remembered"
    player.open(0)
    together = [calls() for _ in range(100)]
    assert together[0] == alone[0] > 1
    assert together[-1] == 1


def test_unspeakable_commands_are_left_out_and_none_left_is_an_error():
    player = sampler(toy.policy())
    seat = player.open(seed=0)
    player.see(seat, "You see a cabinet 1.", ("look", "sing loudly"))
    assert decide(player, seat, 1)[0].action == "look"
    player.tell(seat, "look")
    with pytest.raises(Unspeakable, match="none of the 1 admissible commands is made of known tokens"):
        player.see(seat, "You see a cabinet 1.", ("sing loudly",))


def test_values_out_of_range_are_refused():
    with pytest.raises(ValueError, match="temperature -1"):
        sampler(toy.policy(), temperature=-1)
    with pytest.raises(ValueError, match="context 4096 is more than the model's 512 positions"):
        sampler(toy.policy(), context=4096)
    with pytest.raises(ValueError, match="holds no slot of 512 tokens"):
        slots_within(toy.policy().model, context=512, memory_mb=0.1)
    player = sampler(toy.policy(), slots=1)
    player.open(seed=0)
    with pytest.raises(RuntimeError, match="all 1 cache slots are taken"):
        player.open(seed=1)


def hidden_states(model, tokens):
    return model.model(torch.tensor([tokens])).last_hidden_state[0]


def test_ragged_extensions_and_branches_read_as_plain_sequences():
    model = toy.policy().model
    runner = CachedModel(model, slots=3, context=64)
    rng = np.random.default_rng(0)
    texts = [rng.integers(5, 20, size=n).tolist() for n in (3, 17, 30)]
    slots = [runner.cache.open() for _ in texts]
    for part in (slice(0, 2), slice(2, 9), slice(9, None)):
        moving = [(s, t) for s, t in zip(slots, texts) if t[part]]
        read = runner.extend([Extension(s, t[part]) for s, t in moving])
        for row, (_, t) in zip(read, moving):
            end = len(t[: part.stop]) - 1
            torch.testing.assert_close(row, hidden_states(model, t)[end], atol=1e-4, rtol=1e-4)
    branches = [[5, 6], [7], [8, 9, 10, 11]]
    read = runner.extend([Extension(slots[0], [4, 4], 0, branches), Extension(slots[2], [6])])
    for row, branch in zip(read, branches):
        torch.testing.assert_close(row, hidden_states(model, texts[0] + [4, 4] + branch)[-1], atol=1e-4, rtol=1e-4)
    assert runner.cache.lengths[slots[0]] == 5, "branches are forgotten"
    again = runner.extend([Extension(slots[0], [9])])
    torch.testing.assert_close(again[0], hidden_states(model, [*texts[0], 4, 4, 9])[-1], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("folded", [0, slot_attention.FOLDED, 1000])
@pytest.mark.parametrize("padding", [0.0, 1.0])
def test_heads_that_share_keys_read_as_in_the_plain_model(kv_heads, folded, padding, monkeypatch):
    """Few queries and many, in buckets of their own and in one, one after another and in branches, read at their ends
    and throughout."""
    monkeypatch.setattr(slot_attention, "FOLDED", folded)
    monkeypatch.setattr(slot_attention, "PADDING", padding)
    model = new_model(toy.tokenizer(), width=32, layers=2, heads=4, kv_heads=kv_heads, context=64, seed=0)
    rng = np.random.default_rng(0)
    runner = CachedModel(model.eval(), slots=5, context=64, branch_room=64)
    texts = [rng.integers(5, 20, size=n).tolist() for n in (1, 4, 12, 12, 30)]
    slots = [runner.cache.open() for _ in texts]
    read = runner.extend([Extension(s, t) for s, t in zip(slots, texts)])
    for row, text in zip(read, texts):
        torch.testing.assert_close(row, hidden_states(model, text)[-1], atol=1e-4, rtol=1e-4)
    branches = [rng.integers(5, 20, size=n).tolist() for n in (2, 5, 1, 4)]
    few = [Extension(s, [6], 1, branches[:1], throughout=True) for s in slots[:2]]
    many = [Extension(s, [6, 7], 1, branches, throughout=True) for s in slots[2:]]
    rows = iter(runner.extend([*few, *many]))
    for text, extension in zip(texts, [*few, *many]):
        history = [*text, *extension.tokens]
        torch.testing.assert_close(next(rows), hidden_states(model, history)[-1], atol=1e-4, rtol=1e-4)
        for branch in extension.branches:
            for there in hidden_states(model, history + branch)[len(history) :]:
                torch.testing.assert_close(next(rows), there, atol=1e-4, rtol=1e-4)


@given(st.lists(st.integers(1, 60), min_size=1, max_size=200))
def test_slots_share_a_bucket_while_little_of_it_is_padding(counts):
    spans = slot_attention._spans(counts)
    assert [number for span in spans for number in range(*span)] == list(range(len(counts)))
    for number, (begin, end) in enumerate(spans):
        assert end - begin <= slot_attention.BUCKET
        assert _padding(counts[begin:end]) <= slot_attention.PADDING
        if number:
            before = counts[spans[number - 1][0] : begin + 1]
            assert len(before) > slot_attention.BUCKET or _padding(before) > slot_attention.PADDING


def _padding(counts: list[int]) -> float:
    """The share of it in a bucket of slots with so many queries."""
    return 1 - sum(counts) / (len(counts) * max(counts))


def test_copies_of_a_slot_are_independent():
    model = toy.policy().model
    runner = CachedModel(model, slots=2, context=64)
    a, b = runner.cache.open(), runner.cache.open()
    runner.extend([Extension(a, [5, 6, 7, 8])])
    runner.cache.copy(a, b, 3)
    runner.extend([Extension(a, [9, 10]), Extension(b, [11])])
    read = runner.extend([Extension(a, [12]), Extension(b, [13])])
    torch.testing.assert_close(read[0], hidden_states(model, [5, 6, 7, 8, 9, 10, 12])[-1], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(read[1], hidden_states(model, [5, 6, 7, 11, 13])[-1], atol=1e-4, rtol=1e-4)


def test_a_slot_that_would_outgrow_its_context_is_an_error():
    runner = CachedModel(toy.policy().model, slots=1, context=4)
    slot = runner.cache.open()
    with pytest.raises(ValueError, match="would hold 5 tokens, its context is 4"):
        runner.extend([Extension(slot, [5] * 5)])


def test_the_model_is_left_as_it_was():
    model = toy.policy().model
    before = model.config._attn_implementation
    CachedModel(model, slots=1, context=8).extend([Extension(0, [5, 6])])
    assert model.config._attn_implementation == before


def test_uniforms_are_uniform_and_depend_on_their_key_alone():
    keys = list(itertools.product(range(40), range(20), range(3), range(2)))
    drawn = uniforms(keys)
    assert uniforms(keys[17:18])[0] == drawn[17]
    assert len(set(drawn)) == len(keys)
    assert np.histogram(drawn, bins=10, range=(0, 1))[0] == pytest.approx(np.full(10, len(keys) / 10), rel=0.12)
    assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 0.05
