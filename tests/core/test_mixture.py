"""Several worlds as one: each game is played as its own world plays it."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentprm_core.datasets import games_to_table
from agentprm_core.errors import DataError
from agentprm_core.policy.sampler import Cost, Decision
from agentprm_core.rollout import play, starts
from agentprm_core.suites import games_suite
from agentprm_core.worlds import make_world, world_spec
from agentprm_core.worlds.arithmetic.spec import ARITHMETIC
from agentprm_core.worlds.base import UnsupportedGame
from agentprm_core.worlds.demonstrations import demonstrate
from agentprm_core.worlds.mixture import mixture
from agentprm_core.worlds.textcraft.spec import TEXTCRAFT
from tasks.frame.gates import GateError, run_gate


@pytest.fixture(scope="module")
def games():
    return world_spec("all_worlds").generate(10, 3, "train")


class AtRandom:
    """A player of three seats that does a random listed command, by the episode's seed."""

    seats = 3

    def __init__(self):
        self.free, self.rngs, self.listed, self.asked = [0, 1, 2], {}, {}, []

    def open(self, seed):
        seat = self.free.pop()
        self.rngs[seat] = random.Random(seed)
        return seat

    def see(self, seat, observation, admissible):
        self.listed[seat] = admissible
        return True

    def ask(self, seat):
        self.asked.append(seat)

    def tell(self, seat, action, reason=""):
        pass

    def tick(self):
        asked, self.asked = self.asked, []
        return [(seat, (Decision(self.rngs[seat].choice(self.listed[seat]), "", 0.0),)) for seat in asked]

    def close(self, seat):
        self.free.append(seat)
        return Cost()


def test_the_games_are_the_worlds_own_in_equal_shares(games):
    members = world_spec("all_worlds").members
    assert [sum(game.world == name for game in games) for name in members] == [2] * 5
    for name, member in members.items():
        assert [game for game in games if game.world == name] == member.generate(2, 3, "train")


def test_an_episode_is_the_one_that_its_own_world_plays(games):
    """Same commands, same limit of actions, same success as where the world is played alone."""
    mixed = {e.game_id: e for e in play(AtRandom(), starts(games, 1, 5), world_name="all_worlds", max_turns=9)}
    for name, member in world_spec("all_worlds").members.items():
        own = [game for game in games if game.world == name]
        most = min(9, member.max_turns)
        alone = list(play(AtRandom(), starts(own, 1, 5), world_name=name, max_turns=most))
        assert [mixed[episode.game_id] for episode in alone] == alone
        assert max(episode.length for episode in alone) <= most


@pytest.mark.parametrize("index", range(10))
def test_experts_win_as_in_their_own_world(games, index):
    game = games[index]
    how = {"max_turns": world_spec(game.world).expert_turns, "seed": 1, "knowledge": 1.0}
    mixed = demonstrate(make_world("all_worlds"), game, world_name="all_worlds", **how)
    alone = demonstrate(make_world(game.world), game, world_name=game.world, **how)
    assert mixed == alone


def test_clones_are_independent(games):
    for game in games[::2]:
        world = make_world("all_worlds")
        seen = world.reset(game)
        other, key = world.clone(), world.state_key()
        other.step(seen.admissible[0])
        assert world.state_key() == key


def test_tables_break_success_down_by_world(games):
    spec = world_spec("all_worlds")
    assert {spec.label(game) for game in games} == set(spec.members)
    assert ARITHMETIC.label(games[0]) == games[0].kind


def test_the_gate_holds_each_world_to_its_own_spec(games):
    spec, wanted = world_spec("all_worlds"), {"train": len(games)}
    run_gate("games", games_suite({"train": games_to_table(games)}, wanted, spec))
    odd = [replace(g, attributes={**g.attributes, "depth": 9}) if g.world == "textcraft" else g for g in games]
    with pytest.raises(GateError, match=r"games of textcraft.*depth"):
        run_gate("games", games_suite({"train": games_to_table(odd)}, wanted, spec))


@given(st.integers(0, 50), st.lists(st.integers(1, 9), min_size=2, max_size=2))
def test_shares_are_met_to_the_nearest_game(count, shares):
    def stand_in(name):
        return replace(ARITHMETIC, name=name, generate=lambda n, seed, split: [_named(f"{name}/{i}") for i in range(n)])

    found = mixture("both", [stand_in("a"), stand_in("b")], shares).generate(count, 1, "train")
    assert len(found) == count
    assert abs(sum(game.id.startswith("a/") for game in found) - count * shares[0] / sum(shares)) <= 0.5


def _named(name):
    return replace(ARITHMETIC.generate(1, 1, "train")[0], id=name)


def test_what_cannot_be_mixed_is_refused():
    with pytest.raises(ValueError, match="mixture two: two worlds or more of different names"):
        mixture("two", [ARITHMETIC, ARITHMETIC])
    with pytest.raises(ValueError, match=r"mixture two: 2 positive shares, not \[1, 0\]"):
        mixture("two", [ARITHMETIC, TEXTCRAFT], [1, 0])
    both = mixture("two", [ARITHMETIC, TEXTCRAFT])
    with pytest.raises(UnsupportedGame, match="a game of 'alfworld', not of arithmetic, textcraft"):
        both.make().reset(world_spec("alfworld").generate(1, 1, "train")[0])
    alike = mixture("two", [ARITHMETIC, replace(ARITHMETIC, name="other")])
    with pytest.raises(DataError, match="two worlds of two give a game of train the same id"):
        alike.generate(4, 1, "train")
    no_expert = mixture("two", [replace(ARITHMETIC, expert=None), TEXTCRAFT])
    with pytest.raises(DataError, match="arithmetic has no expert"):
        no_expert.expert(no_expert.make(), ARITHMETIC.generate(1, 1, "train")[0], 1, 1.0)
