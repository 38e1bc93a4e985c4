"""Environments of gymnasium as worlds: a small one with text, names, masks and free text, and what goes wrong."""

from __future__ import annotations

import numpy as np
import pytest

from agentprm_core.errors import DataError
from agentprm_core.types import Game
from agentprm_core.worlds import UnsupportedGame, check_costs
from agentprm_core.worlds.checking import check_world
from agentprm_core.worlds.gym import entry, gym_world
from agentprm_core.worlds.replay import NotDeterministic

gymnasium = pytest.importorskip("gymnasium", reason="gymnasium is not installed")
NAMES = ("left", "right", "open")


class Doors(gymnasium.Env):
    """Three doors, one of which hides a prize: go to it and open it. Each step costs 0.1; the wrong door ends it."""

    action_space = gymnasium.spaces.Discrete(3)
    observation_space = gymnasium.spaces.Text(100)

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        super().reset(seed=seed)
        self.prize, self.at = int(self.np_random.integers(3)), 1
        return self.look(f"The prize is behind door {self.prize}. You stand at door 1."), self.info()

    def step(self, action: int):
        if NAMES[action] == "open":
            return self.look("You open it."), float(self.at == self.prize) - 0.1, True, False, self.info()
        self.at += 1 if NAMES[action] == "right" else -1
        return self.look(f"You stand at door {self.at}."), -0.1, False, False, self.info()

    def look(self, text: str):
        return text

    def info(self) -> dict:
        return {"action_mask": [self.at > 0, self.at < 2, True], "place": self.at}


class Dictionary(Doors):
    def look(self, text: str):
        return {"mission": text, "image": 3}


class Said(Doors):
    """The same, with the name of the action as its text."""

    action_space = gymnasium.spaces.Text(20)

    def step(self, action: str):
        return super().step(NAMES.index(action) if action in NAMES else 0)


class Unseeded(Doors):
    made = 0

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        Unseeded.made += 1
        return super().reset(seed=Unseeded.made)


def spec(env: type, **how):
    settings = {"actions": NAMES, "admissible": entry("action_mask"), "rewards": (-1.1, 0.9)}
    settings |= {"goal": "open the right door", "success": 0.9, "make": lambda name: env(), "max_turns": 6}
    return gym_world("doors", {"three": "Doors-v0"}, **(settings | how))


class Numbered(Doors):
    """Its actions are 5, 6 and 7, and what it pays is no number in the end."""

    action_space = gymnasium.spaces.Discrete(3, start=5)

    def step(self, action: int):
        seen, _, done, *rest = super().step(action - self.action_space.start)
        return seen, float("nan") if done else 0.0, done, *rest


def test_actions_count_from_where_their_space_does_and_a_reward_is_a_number():
    world = spec(Numbered).make()
    world.reset(door(0, spec(Numbered)))
    assert world.step("left").text == "You stand at door 0."
    with pytest.raises(DataError, match="gym_world: the environment says that the reward is nan: it must be a number"):
        world.step("open")


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_costs, "_SECONDS", 0.01)


def door(prize: int, of=None) -> Game:
    """A game whose prize is behind that door."""
    of = of or spec(Doors)
    return next(game for game in of.generate(50, 1, "train") if f"behind door {prize}." in of.make().reset(game).text)


def test_an_episode() -> None:
    world = spec(Doors).make()
    first = world.reset(door(2))
    text = "The prize is behind door 2. You stand at door 1.\n\nYour task is to: open the right door"
    assert (first.text, first.admissible, first.done) == (text, ("left", "open", "right"), False)
    assert first.reward == pytest.approx(1.1 / 2)
    there = world.step("right")
    assert (there.text, there.admissible) == ("You stand at door 2.", ("left", "open"))
    assert world.step("right") == there._replace(text="Nothing happens.")
    won = world.step("open")
    assert won.done and won.reward == pytest.approx((0.8 + 1.1) / 2)


def test_rewards_outside_the_range_are_refused() -> None:
    world = spec(Doors, rewards=(0.0, 0.5)).make()
    world.reset(door(1))
    with pytest.raises(DataError, match=r"has paid -0\.1 in this episode, not 0 to 0\.5: say rewards=\(LOW"):
        world.clone().step("left")
    with pytest.raises(DataError, match=r"has paid 0\.9 in this"):
        world.step("open")


def test_it_keeps_the_contract() -> None:
    for found in (
        spec(Doors),
        spec(Dictionary, text=entry("mission")),
        spec(Doors, admissible=None, make=lambda _: Walled()),
    ):
        report = check_world(found, found.generate(6, 1, "train"))
        assert not report.faults
        assert report.holds("clones_independent") and report.holds("keys_sound")


class Walled(Doors):
    """Every action may be taken everywhere."""

    def step(self, action: int):
        seen = super().step(action)
        self.at = min(max(self.at, 0), 2)
        return seen


def test_free_text() -> None:
    free = spec(Said, actions=(), admissible=None)
    world = free.make()
    assert world.reset(door(1, free)).admissible == ()
    assert world.step("open").done
    listed = spec(Said, actions=(), admissible=lambda observation, info: ["open", "left"])
    assert listed.make().reset(door(1, listed)).admissible == ("left", "open")


def test_a_clone_goes_its_own_way_and_says_the_same() -> None:
    world = spec(Doors).make()
    world.reset(door(0))
    world.step("left")
    twin = world.clone()
    assert twin.step("open").reward > world.step("right").reward


def test_an_environment_that_is_not_seeded_is_found_out() -> None:
    world = spec(Unseeded).make()
    with pytest.raises(NotDeterministic, match=r"a replay differs at reset: first 'The prize is behind door"):
        for game in spec(Unseeded).generate(20, 1, "train"):
            world.reset(game)
            world.clone()


def test_splits_have_seeds_of_their_own_whatever_the_seed() -> None:
    drawn = {}
    for split in ("train", "seen", "unseen"):
        games = [game for seed in (1, 2) for game in spec(Doors).generate(100, seed, split)]
        drawn[split] = {game.payload for game in games}
        assert len(drawn[split]) > 195
    assert not (drawn["train"] & drawn["seen"] or drawn["seen"] & drawn["unseen"] or drawn["train"] & drawn["unseen"])
    few, many = spec(Doors).generate(5, 1, "seen"), spec(Doors).generate(50, 1, "seen")
    assert set(few) < set(many)


def test_what_cannot_be_read_is_named() -> None:
    game = door(1)
    with pytest.raises(DataError, match=r"an observation is a dict, not a string; say how to read it \(text=entry"):
        spec(Dictionary).make().reset(game)
    with pytest.raises(
        DataError, match="'words' is in neither the observation nor the info, which have mission, image"
    ):
        spec(Dictionary, text=entry("words")).make().reset(game)
    with pytest.raises(DataError, match="a mask of 2 for 3 actions"):
        spec(Doors, admissible=lambda found, info: np.array([True, False])).make().reset(game)
    with pytest.raises(UnsupportedGame, match="odd: the payload 'Doors-v0' is not an environment's id and a seed"):
        spec(Doors).make().reset(Game("odd", "doors", "train", "three", "open it now", "Doors-v0"))
    with pytest.raises(ValueError, match="rewards from 1 to 1 is no range"):
        spec(Doors, rewards=(1, 1))
    with pytest.raises(DataError, match="games: 'test' is not a split of doors: train, seen, unseen"):
        spec(Doors).generate(1, 1, "test")


def test_an_action_without_a_name_is_refused() -> None:
    """It could never be done."""
    world = spec(Doors, actions=NAMES[:2]).make()
    with pytest.raises(DataError, match="2 names for the 3 actions of Doors-v0: give a name to each"):
        world.reset(spec(Doors).generate(1, 1, "train")[0])
    world = spec(Doors, actions=()).make()
    with pytest.raises(DataError, match=r"no names for the 3 actions of Doors-v0: give a name to each \(actions=…\)"):
        world.reset(spec(Doors).generate(1, 1, "train")[0])


def test_an_environment_of_gymnasium_by_its_id() -> None:
    """FrozenLake says a number; its places become words."""
    how = {"goal": "reach the goal", "max_turns": 20, "actions": ("left", "down", "right", "up")}
    lake = gym_world("lake", {"small": "FrozenLake-v1"}, text=lambda place, info: f"You are at {place}.", **how)
    game = lake.generate(1, 1, "train")[0]
    world = lake.make()
    assert world.reset(game).text == "You are at 0.\n\nYour task is to: reach the goal"
    assert not check_world(lake, lake.generate(3, 1, "train")).faults


def test_an_id_that_nobody_registered_is_named() -> None:
    nowhere = gym_world("nowhere", {"one": "NoSuchEnv-v0"}, goal="go nowhere now")
    with pytest.raises(DataError, match="gym_world: 'NoSuchEnv-v0' cannot be made"):
        nowhere.make().reset(nowhere.generate(1, 1, "train")[0])
