"""Worlds copied by replay: the copy is where the original is, and an engine that is random is found out."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentprm_core.types import Game
from agentprm_core.worlds.base import Observation
from agentprm_core.worlds.replay import NotDeterministic, Replayed

GAME = Game("tally/1", "tally", "train", "count", "count to five", "")
OTHER = Game("tally/2", "tally", "train", "count", "count to five", "")


class Tally:
    """An engine that counts, up or down, to five."""

    def reset(self, game: Game) -> Observation:
        self.count = 0
        return self._look()

    def step(self, command: str) -> Observation:
        self.count += {"up": 1, "down": -1}.get(command, 0)
        return self._look()

    def _look(self) -> Observation:
        return Observation(f"You are at {self.count}.", ("down", "up"), float(self.count == 5), self.count == 5)


def test_a_clone_replays_and_goes_its_own_way() -> None:
    world = Replayed(Tally)
    world.reset(GAME)
    world.step("up")
    twin = world.clone()
    assert twin.state_key() == world.state_key()
    assert twin.step("up").text == "You are at 2."
    assert world.step("down").text == "You are at 0."
    assert twin.state_key() != world.state_key()


def test_a_world_that_has_not_started_has_clones_too() -> None:
    assert Replayed(Tally).clone().reset(GAME).text == "You are at 0."


commands = st.lists(st.sampled_from(["up", "down", "u", "p", ""]), max_size=6)


@given(commands, commands)
def test_keys_are_equal_exactly_for_equal_games_and_actions(first: list[str], second: list[str]) -> None:
    def key(game: Game, actions: list[str]) -> str:
        world = Replayed(Tally)
        world.reset(game)
        for action in actions:
            world.step(action)
        return world.state_key()

    assert (key(GAME, first) == key(GAME, second)) == (first == second)
    assert key(GAME, first) != key(OTHER, first)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"text": "Another one."}, r"step 2 \('up'\): first 'You are at 2.', then 'Another one.';"),
        ({"reward": 0.5}, r"step 2 \('up'\): first 'You are at 2.' with reward 0.0, then .* with reward 0.5;"),
        ({"admissible": ("up",)}, r"with admissible \('down', 'up'\), then 'You are at 2.' with admissible \('up',\)"),
        ({"done": True}, r"with done False, then 'You are at 2.' with done True"),
    ],
)
def test_an_engine_that_answers_otherwise_is_named_with_both_texts(changes: dict, said: str) -> None:
    made = itertools.count()

    class Fickle(Tally):
        def __init__(self) -> None:
            self.first = next(made) == 0

        def step(self, command: str) -> Observation:
            seen = super().step(command)
            return seen if self.first or self.count < 2 else seen._replace(**changes)

    world = Replayed(Fickle)
    world.reset(GAME)
    world.step("up")
    world.step("up")
    with pytest.raises(NotDeterministic, match=rf"tally/1: a replay differs at .*{said}"):
        world.clone()


def test_a_reset_that_differs_is_named() -> None:
    made = itertools.count()

    class Drawn(Tally):
        def reset(self, game: Game) -> Observation:
            return super().reset(game)._replace(text=f"Room {next(made)}.")

    world = Replayed(Drawn)
    world.reset(GAME)
    with pytest.raises(NotDeterministic, match=r"tally/1: a replay differs at reset: first 'Room 0.', then 'Room 1.'"):
        world.clone()
