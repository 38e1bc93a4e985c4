"""The fast engine by itself: what it says in a household one can read, clones, keys, what it refuses."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentprm_core.types import Game
from agentprm_core.worlds import Observation, UnsupportedGame
from agentprm_core.worlds.alfworld.commands import commands_everywhere, commands_here
from agentprm_core.worlds.alfworld.engine import FastWorld
from agentprm_core.worlds.alfworld.households import generate_games
from tests.core.engine_household import tiny_game

ROOM = (
    "You are in the middle of a room. Looking quickly around you, you see a cabinet 2, a cabinet 1, a countertop 1, "
    "a fridge 1, a microwave 1, and a sinkbasin 1.\n\nYour task is to: put a mug in cabinet."
)
CHOICES = st.lists(st.integers(0, 10**6), max_size=60)
HOUSEHOLDS = generate_games(3, 5, "seen")


def play(commands: list[str], game: Game | None = None) -> tuple[FastWorld, list[str]]:
    """The world after ``commands``, and what it said to each."""
    world = FastWorld()
    world.reset(game or tiny_game())
    return world, [world.step(command).text for command in commands]


def walk(world: FastWorld, shown: Observation, choices: list[int]) -> list[str]:
    """Do the admissible commands that ``choices`` pick; gives them."""
    done = []
    for choice in choices:
        done.append(shown.admissible[choice % len(shown.admissible)])
        shown = world.step(done[-1])
    return done


def test_the_room_and_the_first_commands() -> None:
    shown = FastWorld().reset(tiny_game())
    assert shown.text == ROOM
    assert shown.admissible[0] == "go to cabinet 1"
    assert shown.admissible[-3:] == ("help", "inventory", "look")
    assert not shown.done


@pytest.mark.parametrize(
    ("commands", "last"),
    [
        (["look"], "You are in the middle of a room. Looking quickly around you, you see nothing."),
        (["inventory"], "You are not carrying anything."),
        (["go to cabinet 2"], "You arrive at cabinet 2. The cabinet 2 is closed."),
        (["go to cabinet 2", "go to cabinet 1"], "Nothing happens."),
        (["go to cabinet 2", "look"], "You are facing the cabinet 2, and cabinet 1. Next to it, you see nothing."),
        (
            ["go to cabinet 1", "open cabinet 1"],
            "You open the cabinet 1. The cabinet 1 is open. In it, you see a keychain 1.",
        ),
        (["go to cabinet 2", "open cabinet 2", "close cabinet 2"], "You close the cabinet 2."),
        (["go to cabinet 2", "take apple 2 from cabinet 2"], "Nothing happens."),
        (
            ["go to countertop 1", "take knife 1 from countertop 1"],
            "You pick up the knife 1 from the countertop 1.",
        ),
        (
            ["go to countertop 1", "take mug 1 from countertop 1", "inventory"],
            "You are carrying: a mug 1.",
        ),
        (
            ["go to countertop 1", "take mug 1 from countertop 1", "examine mug 1"],
            "This is a normal mug 1. In it, you see a spoon 1.",
        ),
        (
            ["go to countertop 1", "take plate 1 from countertop 1", "examine plate 1"],
            "This is a normal plate 1. In it, you see nothing.",
        ),
        (["go to countertop 1", "examine knife 1"], "Nothing happens."),
        (["go to countertop 1", "use desklamp 1", "use desklamp 1"], "You turn on the desklamp 1."),
        (["go to countertop 1", "take tray 1 from countertop 1", "move tray 1 to countertop 1"], "Nothing happens."),
        (["  go to fridge 1\n"], "You arrive at fridge 1. The fridge 1 is closed."),
        (["GO TO FRIDGE 1"], "Nothing happens."),
    ],
)
def test_what_it_says(commands: list[str], last: str) -> None:
    assert play(commands)[1][-1] == last


def test_what_an_apple_goes_through() -> None:
    commands = ["go to cabinet 2", "open cabinet 2", "take apple 2 from cabinet 2", "examine apple 2"]
    for verb, place in (("clean", "sinkbasin 1"), ("heat", "microwave 1"), ("cool", "fridge 1")):
        commands += [f"go to {place}", f"{verb} apple 2 with {place}", "examine apple 2"]
    said = play(commands)[1]
    assert said[3] == "There's nothing special about apple 2."
    assert said[5:7] == ["You clean the apple 2 using the sinkbasin 1.", "This is a clean apple 2."]
    assert said[8:10] == ["You heat the apple 2 using the microwave 1.", "This is a hot and clean apple 2."]
    assert said[11:13] == ["You cool the apple 2 using the fridge 1.", "This is a cool and clean apple 2."]


def test_an_object_taken_from_one_of_two_neighbours_lies_next_to_them_once_put_into_the_other() -> None:
    commands = ["go to cabinet 1", "open cabinet 1", "open cabinet 2", "take apple 2 from cabinet 2"]
    world, said = play([*commands, "move apple 2 to cabinet 1", "look"])
    assert said[-1] == "You are facing the cabinet 2, and cabinet 1. Next to it, you see a apple 2."
    world.step("take apple 2 from cabinet 1")
    world.step("move apple 2 to cabinet 2")
    assert world.step("look").text.endswith("Next to it, you see a apple 2.")


def test_slicing_needs_a_knife_in_hand_and_the_object_at_the_spot_open_or_not() -> None:
    commands = ["go to countertop 1", "take knife 1 from countertop 1", "go to fridge 1", "slice apple 1 with knife 1"]
    assert play(commands)[1][-1] == "You sliced the apple 1 with the knife 1."


def test_an_object_in_two_receptacles_is_in_the_other_still_when_taken_from_one() -> None:
    world, _ = play(["go to countertop 1", "take keychain 1 from countertop 1", "go to cabinet 1"])
    assert world.step("open cabinet 1").text.endswith("you see a keychain 1.")


def test_the_goal_holds_when_the_mug_is_in_a_cabinet_and_no_longer_when_it_is_taken_out() -> None:
    world, _ = play(["go to countertop 1", "take mug 1 from countertop 1", "go to cabinet 1", "open cabinet 1"])
    assert world.step("move mug 1 to cabinet 1").done
    assert world.step("look").done
    assert not world.step("take mug 1 from cabinet 1").done


def test_facts_as_the_experts_of_alfworld_spell_them() -> None:
    world, _ = play(["go to countertop 1", "take mug 1 from countertop 1", "go to microwave 1", "open microwave 1"])
    world.step("heat mug 1 with microwave 1")
    facts = world.facts()
    assert "holds agent1 mug 1" in facts
    assert "holdsany agent1" in facts
    assert "ishot mug 1" in facts
    assert "iscool apple 1" in facts
    assert "opened microwave 1" in facts
    assert "inreceptacle keychain 1 cabinet 1" in facts
    assert not [fact for fact in facts if fact.startswith("inreceptacle mug 1")]


@given(choices=CHOICES, more=CHOICES, household=st.sampled_from(HOUSEHOLDS))
@settings(max_examples=60)
def test_a_clone_and_its_original_never_influence_each_other(
    choices: list[int], more: list[int], household: Game
) -> None:
    world = FastWorld()
    walk(world, world.reset(household), choices)
    shown, key, facts = world.step("look"), world.state_key(), world.facts()
    twin = world.clone()
    assert (twin.step("look"), twin.state_key(), twin.facts()) == (shown, key, facts)
    walk(twin, shown, more)
    assert (world.step("look"), world.state_key(), world.facts()) == (shown, key, facts)
    left, key, facts = twin.step("look"), twin.state_key(), twin.facts()
    walk(world, shown, more[::-1])
    assert (twin.step("look"), twin.state_key(), twin.facts()) == (left, key, facts)


@given(choices=CHOICES, household=st.sampled_from(HOUSEHOLDS))
@settings(max_examples=60)
def test_replaying_the_commands_gives_the_same_key(choices: list[int], household: Game) -> None:
    world = FastWorld()
    commands = walk(world, world.reset(household), choices)
    again, said = play(commands, household)
    assert again.state_key() == world.state_key()
    assert again.step("look") == world.step("look")
    assert "Nothing happens." not in said


@given(choices=CHOICES, household=st.sampled_from(HOUSEHOLDS))
@settings(max_examples=60)
def test_commands_found_before_are_those_of_the_state(choices: list[int], household: Game) -> None:
    world = FastWorld()
    shown = world.reset(household)
    for choice in choices:
        shown = world.step(shown.admissible[choice % len(shown.admissible)])
        here = commands_here(world)
        everywhere = [command for command in commands_everywhere(world.game) if command not in here]
        assert shown.admissible == tuple(sorted([*everywhere, *filter(here.get, here)]))


@given(choices=CHOICES, household=st.sampled_from(HOUSEHOLDS))
@settings(max_examples=60)
def test_undoing_a_move_gives_back_the_key(choices: list[int], household: Game) -> None:
    world = FastWorld()
    walk(world, world.reset(household), choices)
    shown, key = world.step("look"), world.state_key()
    for command in shown.admissible:
        undo = _inverse(command, shown)
        # where receptacles share a place, the world remembers which of them a thing was ever taken from
        shared = command.startswith("move ") and len(world.game.receptacles_at[world.location]) > 1
        if undo is None or shared:
            continue
        changed = world.clone()
        changed.step(command)
        assert changed.state_key() != key
        assert changed.step(undo).text != "Nothing happens."
        assert changed.state_key() == key


def _inverse(command: str, shown: Observation) -> str | None:
    """The command that takes ``command`` back, None where nothing does."""
    facing = re.match(r"You are facing the (\w+ \d+)", shown.text)
    if command.startswith("go to "):
        return facing and f"go to {facing[1]}"
    if command.startswith("open "):
        return command.replace("open", "close", 1)
    if command.startswith("close "):
        return command.replace("close", "open", 1)
    match = re.match(r"move (.*) to (.*)", command)
    return match and f"take {match[1]} from {match[2]}"


@pytest.mark.integration
def test_keys_tell_games_apart_and_agree_across_processes() -> None:
    world, other = FastWorld(), FastWorld()
    world.reset(HOUSEHOLDS[0])
    other.reset(replace(HOUSEHOLDS[0], id="train/a-b-c-d-1/another"))
    assert world.state_key() != other.state_key()
    code = (
        "from agentprm_core.worlds.alfworld.engine import FastWorld\n"
        "from tests.core.engine_household import tiny_game\n"
        "w = FastWorld(); w.reset(tiny_game()); w.step('go to fridge 1'); print(w.state_key())"
    )
    keys = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert keys == {play(["go to fridge 1"])[0].state_key()}


@pytest.mark.integration
def test_the_engine_needs_none_of_the_published_one() -> None:
    code = (
        "import sys; from agentprm_core.worlds import make_world; from tests.core.engine_household import tiny_game\n"
        "make_world('alfworld').reset(tiny_game())\n"
        "print(sorted({'alfworld', 'textworld', 'fast_downward', 'torch', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        ({"more_facts": "(flooded Fridge_bar__plus_04_dot_00)"}, "the predicate flooded in the initial state is not"),
        ({"more_facts": "(atLocation agent1 loc_bar_1_bar_1)"}, "2 atLocation facts: one agent at one location"),
        ({"more_facts": "(holds agent1 Mug_bar__plus_01_dot_02)"}, "holds in the initial state: an agent that starts"),
        ({"more_facts": "(openable Mug_bar__plus_01_dot_02)"}, "openable of mug_bar__plus_01_dot_02, which is of type"),
        ({"more_facts": "(cleanable Ghost_bar_1)"}, "cleanable of ghost_bar_1, which is undeclared"),
        ({"more_facts": "(cleanable)"}, "cleanable of 0 arguments"),
        ({"more_facts": "(not (isHot Mug_bar__plus_01_dot_02))"}, "where a fact belongs"),
        (
            {"more_facts": "(receptacleAtLocation Fridge_bar__plus_04_dot_00 loc_bar_0_bar_0)"},
            "the receptacle fridge_bar__plus_04_dot_00 is at two locations",
        ),
        (
            {"more_facts": "(receptacleType Safe_bar_1 CabinetType)", "more_objects": "Safe_bar_1 - receptacle"},
            "the receptacle safe_bar_1 is at no location",
        ),
        (
            {"more_facts": "(pickupable Ball)", "more_objects": "Ball - object"},
            "the object ball has no position in its id",
        ),
        ({"more_objects": "Robot_bar_1 - vehicle"}, "the type vehicle is not modelled"),
        ({"goal": "(isOn DeskLamp_bar__plus_01_dot_06)"}, "the goal reads ison, which is not modelled"),
        ({"goal": "(isClean Curtains)"}, "no play can reach the goal"),
        ({"goal": "(isClean DeskLamp_bar__plus_01_dot_06)"}, "no play can reach the goal"),
        ({"goal": "(cleanable Mug_bar__plus_01_dot_02)"}, "the goal holds from the start to the end"),
        ({"goal": "(and (isClean ?o))"}, "the goal uses the variable ?o outside any quantifier"),
        ({"goal": "(isClean)"}, "the goal gives isclean 0 arguments: it takes 1"),
        ({"goal": "(when (isClean x) (isHot x))"}, "the goal reads when, which is not modelled"),
    ],
)
def test_what_is_not_modelled_is_refused_by_name(problem: dict[str, str], message: str) -> None:
    with pytest.raises(UnsupportedGame, match=rf"^train/pick_and_place_simple-Mug.*{re.escape(message)}"):
        FastWorld().reset(tiny_game(**problem))


def test_a_problem_that_is_cut_off_is_refused() -> None:
    game = tiny_game()
    with pytest.raises(UnsupportedGame, match="brackets are never closed: the text is cut short"):
        FastWorld().reset(replace(game, payload=game.payload[: len(game.payload) // 2]))


def test_a_random_walk_never_meets_a_command_that_does_nothing() -> None:
    rng = random.Random(3)
    for household in HOUSEHOLDS:
        world = FastWorld()
        shown = world.reset(household)
        for _ in range(200):
            assert list(shown.admissible) == sorted(set(shown.admissible))
            shown = world.step(rng.choice(shown.admissible))
            assert shown.text != "Nothing happens."
