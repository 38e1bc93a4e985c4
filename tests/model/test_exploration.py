"""Exploration by visit counts: the policy itself at first, then what was rarely tried; and nothing at all at 0."""

from collections import Counter

import pytest

from agentprm_core.datasets import episodes_to_table
from agentprm_core.exploration import Explorer, pick, play_exploring
from agentprm_core.plays import Bonus, Branch, Plays, played_by
from agentprm_core.policy.sampler import Sampler
from agentprm_core.rollout import play, starts
from agentprm_core.search.playing import PlaySettings
from tests.model import toy

HOW = {"max_turns": 6}


@pytest.fixture(scope="module")
def policy():
    return toy.policy(sharpness=6.0)


def new_sampler(policy):
    return Sampler(policy, slots=8, context=512, temperature=1.0, constrained=True, max_action_tokens=16)


def sorted_played(episodes):
    return sorted(episodes, key=lambda e: (e.game_id, e.index))


def coverage(episodes):
    """Distinct (state, action) and all turns."""
    seen = Counter((turn.state_key, turn.action) for e in episodes for turn in e.turns)
    return len(seen), sum(seen.values())


def test_pick_follows_the_formula():
    shares = Counter(pick([6, 2], [3, 0], 1.0, (1, n)) for n in range(4000))
    assert shares[0] / 4000 == pytest.approx((6 / 4) / (6 / 4 + 2), abs=0.03)
    assert {pick([6, 2], [10_000, 0], 5.0, (1, n)) for n in range(100)} == {1}
    assert pick([3], [7], 2.0, (0,)) == 0


def test_without_a_bonus_actions_are_drawn_as_the_policy_draws_them(policy, toy_engine):
    games = [toy.game(1)]
    begun = starts(games, 400, 5)
    plain = play(new_sampler(policy), begun, world_name=toy_engine, max_turns=1)
    picked = play_exploring(new_sampler(policy), begun, bonus=0.0, world_name=toy_engine, max_turns=1)
    a, b = (Counter(e.turns[0].action for e in episodes) for episodes in (plain, picked))
    assert a.total() == b.total() == 400
    for action in a | b:
        assert abs(a[action] - b[action]) < 4 * (2 * 400 * 0.25) ** 0.5


def test_more_of_the_world_is_seen_with_a_bonus(policy, toy_engine):
    begun = starts([toy.game(n) for n in range(4)], 8, 3)
    plain = list(play(new_sampler(policy), begun, world_name=toy_engine, **HOW))
    explored = list(play_exploring(new_sampler(policy), begun, bonus=3.0, world_name=toy_engine, **HOW))
    (few, turns), (many, others) = coverage(plain), coverage(explored)
    assert many / others > 1.15 * few / turns
    assert all(turn.valid for e in explored for turn in e.turns)


def test_what_an_episode_does_depends_on_its_games_earlier_ones_alone(policy, toy_engine):
    begun = starts([toy.game(n) for n in range(4)], 3, 3)
    together = sorted_played(play_exploring(new_sampler(policy), begun, bonus=2.0, world_name=toy_engine, **HOW))
    alone = [
        episode
        for n in range(4)
        for episode in sorted_played(
            play_exploring(
                new_sampler(policy), [s for s in begun if s.game.id == toy.game(n).id], bonus=2.0,
                world_name=toy_engine, **HOW,
            )
        )
    ]  # fmt: skip
    assert together == alone


def test_the_first_round_counts_for_the_second_only(policy, toy_engine):
    explorer = Explorer(new_sampler(policy), {1: toy.game(1)}, bonus=9.0, world_name=toy_engine)
    (begun,) = starts([toy.game(1)], 1, 1)
    explorer._games = {begun.seed: begun.game}
    (first,) = play(explorer, [begun], world_name=toy_engine, max_turns=1)
    (again,) = play(explorer, [begun], world_name=toy_engine, max_turns=1)
    assert first.turns == again.turns
    explorer.next_round()
    (other,) = play(explorer, [begun], world_name=toy_engine, max_turns=1)
    assert other.turns[0].action != first.turns[0].action


def plays(explore):
    settings = PlaySettings("toy", 6, 512, 16, constrained=True, slots=8, cache_mb=64)
    return Plays(3, 1.0, explore, Branch(0, 0, 0, 1, 1.0), settings, seed=3)


def test_rollouts_are_the_same_bytes_as_plain_play_where_exploration_is_off(policy, toy_engine):
    begun = starts([toy.game(n) for n in range(4)], 3, 3)
    names = {"iteration": 1, "method": "policy", "policy": "x"}
    plain = episodes_to_table(play(new_sampler(policy), begun, world_name=toy_engine, **HOW), **names)
    off = episodes_to_table(played_by(plays(None), policy, begun), **names)
    on = episodes_to_table(played_by(plays(Bonus(2.0)), policy, begun), **names)
    assert off.equals(plain)
    assert not on.equals(plain)


def test_a_negative_bonus_is_refused(policy):
    with pytest.raises(ValueError, match=r"exploration -1.0 is negative"):
        Explorer(new_sampler(policy), {}, bonus=-1.0, world_name="toy")
