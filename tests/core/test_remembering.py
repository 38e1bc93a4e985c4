"""The memory beside the agent: which commands it withholds, and that nothing else differs from the household."""

from __future__ import annotations

import random

import pytest

from agentprm_core.types import Game
from agentprm_core.worlds import World, make_world, world_spec
from agentprm_core.worlds.alfworld.expert import Expert
from agentprm_core.worlds.alfworld.households import generate_games
from agentprm_core.worlds.checking import check_world

GAMES = generate_games(8, 3, "unseen")


@pytest.fixture
def world() -> World:
    return make_world("alfworld-remembering")


def _goings(admissible: tuple[str, ...]) -> list[str]:
    return [command for command in admissible if command.startswith("go to ")]


def _first(world: World, game: Game, *, closed: bool) -> str:
    """``go to …`` of a place that is closed, or that is not. The world is reset."""
    probe = make_world("alfworld")
    for command in _goings(probe.reset(game).admissible):
        if ("is closed." in probe.step(command).text) == closed:
            world.reset(game)
            return command
    raise AssertionError("this household has no such place")


def _with(kind: str) -> Game:
    return next(game for game in GAMES if kind in game.kind)


@pytest.mark.parametrize("game", GAMES, ids=lambda game: game.kind)
def test_what_is_offered_does_what_it_does_in_the_household(world: World, game: Game) -> None:
    plain, draws = make_world("alfworld"), random.Random(5)
    seen, there = world.reset(game), plain.reset(game)
    for _ in range(60):
        assert (seen.text, seen.reward, seen.done) == (there.text, there.reward, there.done)
        withheld = set(there.admissible) - set(seen.admissible)
        assert set(seen.admissible) <= set(there.admissible)
        assert all(command.startswith("go to ") for command in withheld)
        command = draws.choice(seen.admissible)
        seen, there = world.step(command), plain.step(command)


def test_a_place_that_was_looked_into_for_nothing_is_no_command_any_more(world: World) -> None:
    going = _first(world, GAMES[0], closed=False)
    world.step(going)
    other = next(c for c in _goings(world.step("look").admissible) if c != going)
    seen = world.step(other)
    assert going not in seen.admissible
    key = world.state_key()
    assert world.step(going).text == "Nothing happens."
    assert world.state_key() == key


def test_a_closed_place_is_offered_until_it_is_opened(world: World) -> None:
    going = _first(world, next(g for g in GAMES if "(openable" in g.payload), closed=True)
    place = going.removeprefix("go to ")
    world.step(going)
    away = next(c for c in _goings(world.step("look").admissible) if c != going)
    assert going in world.step(away).admissible
    world.step(going)
    world.step(f"open {place}")
    other = next(c for c in _goings(world.step("look").admissible) if c not in (going, away))
    assert going not in world.step(other).admissible


def test_full_hands_may_go_anywhere_and_empty_ones_back_to_where_they_took_something(world: World) -> None:
    plain, expert, game = make_world("alfworld"), Expert(), _with("two_obj")
    seen, there, taken = world.reset(game), plain.reset(game), ""
    while not seen.done:
        command = expert.act(seen)
        seen, there = world.step(command), plain.step(command)
        if command.startswith("take "):
            assert seen.admissible == there.admissible
            taken = command.partition(" from ")[2]
        if command.startswith("move ") and not seen.done:
            assert f"go to {taken}" in seen.admissible or f"go to {taken}" not in there.admissible
    assert seen.reward == 1


def test_in_training_a_place_that_something_was_put_into_is_no_command_for_empty_hands() -> None:
    world, expert = make_world("alfworld-training"), Expert()
    seen, put = world.reset(_with("two_obj")), ""
    while not put:
        command = expert.act(seen)
        seen = world.step(command)
        put = command.partition(" to ")[2] if command.startswith("move ") else ""
    assert not seen.done
    away = _goings(seen.admissible)[0]
    seen = world.step(away)
    assert f"go to {put}" not in seen.admissible
    while not any(command.startswith("take ") for command in seen.admissible):
        seen = world.step(next(c for c in _goings(seen.admissible) if c != away))
        place = next((c for c in seen.admissible if c.startswith("open ")), None)
        seen = world.step(place) if place else seen
    seen = world.step(next(command for command in seen.admissible if command.startswith("take ")))
    assert f"go to {put}" in seen.admissible


def test_once_everything_was_looked_into_all_is_offered_again(world: World) -> None:
    plain = make_world("alfworld")
    game = GAMES[0]
    seen, there = world.reset(game), plain.reset(game)
    visited: set[str] = set()
    for _ in range(200):
        left = [c for c in _goings(seen.admissible) if c not in visited]
        if not left:
            break
        command = left[0]
        visited.add(command)
        seen, there = world.step(command), plain.step(command)
        place = command.removeprefix("go to ")
        if f"open {place}" in seen.admissible:
            seen, there = world.step(f"open {place}"), plain.step(f"open {place}")
    assert seen.admissible == there.admissible
    assert len(visited) > 5


def test_a_clone_has_a_memory_of_its_own_and_the_key_tells_memories_apart(world: World) -> None:
    seen = world.reset(GAMES[0])
    one, other = _goings(seen.admissible)[:2]
    twin, plain_key = world.clone(), world.state_key()
    world.step(one)
    assert twin.state_key() == plain_key
    assert one in twin.step(other).admissible
    back = make_world("alfworld-remembering")
    back.reset(GAMES[0])
    back.step(other)
    assert back.state_key() == twin.state_key()
    assert back.state_key() != world.state_key()


@pytest.mark.parametrize("name", ["alfworld-remembering", "alfworld-training"])
def test_it_keeps_the_contract(name: str) -> None:
    spec = world_spec(name)
    report = check_world(spec, spec.generate(6, 2, "train"), name=spec.name, seed=1)
    assert not report.faults
    assert not report.unchecked
