"""The rollout loop: starts, ends, order-free results, and a player that is left clean."""

import gc
from dataclasses import replace

import pytest

from agentprm_core.policy.sampler import Sampler
from agentprm_core.rollout import Start, play, starts
from agentprm_core.seeding import episode_seed
from tests.model import toy

GAMES = [toy.game(n) for n in range(6)]


def sampler(**changes):
    settings = {"slots": 4, "context": 512, "temperature": 1.0, "constrained": True, "max_action_tokens": 8}
    return Sampler(toy.policy(), **{**settings, **changes})


def played(player, begun, engine, max_turns=10):
    return sorted(play(player, begun, world_name=engine, max_turns=max_turns), key=lambda e: (e.game_id, e.index))


def test_episodes_end_when_won_or_at_the_turn_limit_and_say_what_happened(toy_engine):
    episodes = played(sampler(temperature=3.0), starts(GAMES, 4, seed=1), toy_engine)
    assert [(e.game_id, e.index) for e in episodes] == [(g.id, i) for g in GAMES for i in range(4)]
    assert 0 < sum(e.won for e in episodes) < len(episodes)
    for episode in episodes:
        assert episode.won or episode.length == 10
        assert not episode.truncated
        world = toy.ToyWorld()
        seen = world.reset(next(g for g in GAMES if g.id == episode.game_id))
        for turn in episode.turns:
            assert (turn.observation, turn.admissible) == (seen.text, seen.admissible)
            assert (turn.state_key, turn.valid) == (world.state_key(), turn.action in seen.admissible)
            seen = world.step(turn.action)
        assert seen.done == episode.won
        assert len(episode.extra["log_probs"]) == episode.length


def test_an_episode_that_outgrows_the_context_is_truncated_and_lost(toy_engine):
    wide = played(sampler(temperature=3.0), starts(GAMES, 2, seed=1), toy_engine, max_turns=30)
    narrow = played(sampler(temperature=3.0, context=60), starts(GAMES, 2, seed=1), toy_engine, max_turns=30)
    assert any(e.truncated for e in narrow)
    for long, short in zip(wide, narrow):
        assert short.turns == long.turns[: short.length], "the same episode, up to where the context is full"
        assert short.truncated == (short.length < long.length)
        assert not (short.truncated and short.won)


def test_replayed_starts_are_played_as_told_and_marked(toy_engine):
    whole = played(sampler(), starts(GAMES, 1, seed=2), toy_engine)
    begun = [
        Start(game, 0, seed=7, actions=tuple(t.action for t in e.turns[:3]), first="look")
        for game, e in zip(GAMES, whole)
    ]
    for before, after in zip(whole, played(sampler(), begun, toy_engine)):
        replayed = min(3, before.length)
        assert after.turns[:replayed] == before.turns[:replayed]
        assert after.start == replayed
        if after.length > 3:
            assert after.turns[3].action == "look"
            assert len(after.extra["log_probs"]) == after.length - 4, "given actions were not decided"


def test_branches_of_one_history_read_it_once(toy_engine):
    history = tuple(t.action for t in played(sampler(slots=1), starts(GAMES[:1], 1, seed=2), toy_engine)[0].turns[:6])
    costs = []
    for branches in (1, 4):
        player = sampler()
        begun = [Start(GAMES[0], i, seed=i, actions=history) for i in range(branches)]
        episodes = played(player, begun, toy_engine, max_turns=len(history) + 4)
        assert player.tokens_read == sum(e.extra["cost"].policy_read for e in episodes)
        costs.append(player.tokens_read)
    assert (costs[1] - costs[0]) / 3 < costs[0] / 2, "a further branch reads what is its own"


def test_a_player_is_clean_after_a_caller_has_seen_enough(toy_engine):
    player = sampler()
    for _ in range(3):
        next(play(player, starts(GAMES, 4, seed=1), world_name=toy_engine, max_turns=10))
    assert played(player, starts(GAMES, 1, seed=1), toy_engine) == played(
        sampler(), starts(GAMES, 1, seed=1), toy_engine
    )


def test_the_collector_spares_what_is_loaded_while_episodes_are_played_and_no_longer(toy_engine):
    playing = play(sampler(), starts(GAMES, 2, seed=1), world_name=toy_engine, max_turns=3)
    usual = gc.get_threshold()
    next(playing)
    assert gc.get_freeze_count() > 1000 and gc.get_threshold()[0] > usual[0]
    playing.close()
    assert gc.get_freeze_count() == 0 and gc.get_threshold() == usual


def test_seeds_name_the_episode_and_nothing_else():
    assert episode_seed(1, "a", 2) == episode_seed(1, "a", 2)
    seeds = {s.seed for run in (1, 2) for s in starts(GAMES, 3, run)}
    assert len(seeds) == 2 * 3 * len(GAMES)
    assert starts(GAMES[2:], 2, 1) == starts(GAMES, 2, 1)[4:]


def test_an_unknown_engine_is_named():
    with pytest.raises(ValueError, match="'fsat' is not one of alfworld, alfworld-textworld"):
        next(play(sampler(), starts(GAMES, 1, 0), world_name="fsat", max_turns=3))


def test_a_copy_of_a_start_with_another_seed_is_another_episode(toy_engine):
    start = starts(GAMES, 1, seed=1)[0]
    a, b = played(sampler(temperature=3.0), [start, replace(start, index=1, seed=99)], toy_engine)
    assert [t.action for t in a.turns] != [t.action for t in b.turns]
