"""The world's contract, held by every engine alike."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import asdict, replace

import pytest

from agentprm_core.types import Game
from agentprm_core.worlds import UnsupportedGame, World, make_world
from agentprm_core.worlds.alfworld.expert import Expert
from agentprm_core.worlds.alfworld.households import generate_games
from agentprm_core.worlds.base import admits

WORLDS = ("alfworld", "alfworld-textworld")


@pytest.fixture(scope="module")
def games() -> list[Game]:
    """The two smallest of a few that have something to open: the published engine's time goes with the size."""
    openable = [game for game in generate_games(8, 7, "unseen") if "(openable" in game.payload]
    return sorted(openable, key=lambda game: len(game.payload))[:2]


@pytest.fixture(scope="module", params=WORLDS)
def world(request: pytest.FixtureRequest) -> World:
    return make_world(request.param)


def _plan(game: Game) -> list[str]:
    """The expert's winning commands, found on the fast engine."""
    world, expert, commands = make_world("alfworld"), Expert(), []
    seen = world.reset(game)
    while not seen.done:
        commands.append(expert.act(seen))
        seen = world.step(commands[-1])
    return commands


def _closed(world: World, game: Game) -> str:
    """Go to some receptacle that can be opened, and return its name."""
    for command in world.reset(game).admissible:
        if command.startswith("go to") and "is closed." in world.step(command).text:
            return command.removeprefix("go to ")
    raise AssertionError("no receptacle of this household opens")


def test_reset_shows_the_room_and_the_task(world: World, games: list[Game]) -> None:
    seen = world.reset(games[0])
    room, task = seen.text.split("\n\n")
    assert room.startswith("You are in the middle of a room. Looking quickly around you, you see a ")
    assert task == f"Your task is to: {games[0].goal}"
    assert not seen.done


def test_admissible_commands_are_sorted_and_unique(world: World, games: list[Game]) -> None:
    seen = world.reset(games[0])
    assert list(seen.admissible) == sorted(set(seen.admissible))
    assert {"look", "inventory", "help"} < set(seen.admissible)


def test_what_is_not_admissible_changes_nothing(world: World, games: list[Game]) -> None:
    before, key = world.reset(games[0]), world.state_key()
    for command in ("", "dance", "take mug 1 from the moon"):
        seen = world.step(command)
        assert (seen.text, seen.admissible, seen.done) == ("Nothing happens.", before.admissible, False)
        assert world.state_key() == key


def test_the_expert_wins_on_every_engine(world: World, games: list[Game]) -> None:
    world.reset(games[1])
    outcomes = [world.step(command).done for command in _plan(games[1])]
    assert outcomes == [False] * (len(outcomes) - 1) + [True]


def test_a_clone_and_its_original_part_ways(world: World, games: list[Game]) -> None:
    plan = _plan(games[0])
    world.reset(games[0])
    world.step(plan[0])
    twin, key = world.clone(), world.state_key()
    assert twin.state_key() == key
    ours = [world.step(command) for command in plan[1:]]
    assert twin.state_key() == key
    assert [twin.step(command) for command in plan[1:]] == ours
    assert twin.state_key() == world.state_key() != key


def test_a_reset_forgets_the_episode(world: World, games: list[Game]) -> None:
    first, key = world.reset(games[0]), world.state_key()
    for command in _plan(games[0]):
        world.step(command)
    assert world.state_key() != key
    assert world.reset(games[0]) == first
    assert world.state_key() == key


def test_the_state_key_follows_the_state_and_not_the_way_there(world: World, games: list[Game]) -> None:
    receptacle = _closed(world, games[0])
    there = world.state_key()
    for command in ("look", "inventory", "help", f"examine {receptacle}"):
        world.step(command)
        assert world.state_key() == there, command
    world.step(f"open {receptacle}")
    assert world.state_key() != there
    world.step(f"close {receptacle}")
    assert world.state_key() == there


def test_states_of_two_games_never_share_a_key(world: World, games: list[Game]) -> None:
    world.reset(games[0])
    key = world.state_key()
    world.reset(games[1])
    assert world.state_key() != key


def test_an_unreadable_problem_is_refused_by_name(world: World, games: list[Game]) -> None:
    broken = replace(games[0], payload=games[0].payload[:2000])
    with pytest.raises(UnsupportedGame, match=games[0].id):
        world.reset(broken)


def test_engines_say_the_same(games: list[Game]) -> None:
    fast, published = (make_world(engine) for engine in WORLDS)
    assert fast.reset(games[1]) == published.reset(games[1])
    for command in ["inventory", "go nowhere", *_plan(games[1])]:
        assert fast.step(command) == published.step(command), command


_KEY = """
import json, sys
from agentprm_core.worlds import make_world
from agentprm_core.types import Game
world = make_world({engine!r})
world.reset(Game(**json.load(sys.stdin)))
world.step({command!r})
print(world.state_key())
"""


@pytest.mark.parametrize("engine", WORLDS)
@pytest.mark.integration
def test_state_keys_are_the_same_in_every_process(engine: str, games: list[Game]) -> None:
    command = _plan(games[0])[0]
    elsewhere = subprocess.run(
        [sys.executable, "-c", _KEY.format(engine=engine, command=command)],
        input=json.dumps(asdict(games[0])),
        env=os.environ | {"PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    world = make_world(engine)
    world.reset(games[0])
    world.step(command)
    assert elsewhere.stdout.strip() == world.state_key()


@pytest.mark.parametrize(
    ("admissible", "command", "means"),
    [
        (("look",), "look", True),
        (("look",), "loo", False),
        (("click[buy now]", "search[…]"), "search[red shoes]", True),
        (("click[buy now]", "search[…]"), "search[]", False),
        (("click[buy now]", "search[…]"), "click[red shoes]", False),
        (("get … …",), "get 2 oak logs", True),
        (("a.c",), "abc", False),
        (("a.…",), "abc", False),
        ((), "any line", True),
        ((), " ", False),
    ],
)
def test_what_is_admissible(admissible: tuple[str, ...], command: str, means: bool) -> None:
    assert admits(admissible, command) == means


def test_an_unknown_engine_is_named() -> None:
    with pytest.raises(ValueError, match=r"^'slow' is not one of alfworld, alfworld-textworld"):
        make_world("slow")


@pytest.mark.parametrize(
    ("named", "hint"),
    [
        ("json", "; did you mean json:SPEC?"),
        ("here/lamps.py", "; did you mean here.lamps:SPEC?"),
        ("here.lamps", "; did you mean here.lamps:SPEC?"),
        ("/somewhere/lamps.py", "; a world of your own is named by its module and its spec, as in my_module:SPEC"),
        ("__main__", ""),
        ("nowhere", ""),
    ],
)
def test_a_module_in_place_of_its_spec_is_told_what_is_missing(named: str, hint: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"nor package.module:SPEC{hint}") + "$"):
        make_world(named)
