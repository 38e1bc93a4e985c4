"""TextCraft's engine: the rules by worked examples, a slow second reading of them, the published dialogues."""

from __future__ import annotations

import json
import lzma
import os
import random
import subprocess
import sys
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentprm_core.draws import sample_of
from agentprm_core.types import Game
from agentprm_core.worlds import UnsupportedGame, world_spec
from agentprm_core.worlds.check_spec import game_faults
from agentprm_core.worlds.textcraft.compiled import compile_game, write_game
from agentprm_core.worlds.textcraft.dialogues import check
from agentprm_core.worlds.textcraft.engine import TextCraft
from agentprm_core.worlds.textcraft.generate import generate_games
from agentprm_core.worlds.textcraft.pack import ARCHIVE, SHARED
from agentprm_core.worlds.textcraft.planner import solves
from agentprm_core.worlds.textcraft.published import RECORDS, load_published
from agentprm_core.worlds.textcraft.recipes import Ingredient, Recipe, RecipeBook, extended_lists, write_book
from tests.core.textcraft_by_the_rules import SlowTextCraft

DATA = Path(os.environ.get("TEXTCRAFT_RECIPES", SHARED / ARCHIVE)).parent
needs_data = pytest.mark.skipif(
    not (DATA / RECORDS).exists(),
    reason=f"no TextCraft data: TEXTCRAFT_RECIPES is not set and {DATA / RECORDS} is not there",
)


def _part(name: str, count: int) -> Ingredient:
    return Ingredient(name.removeprefix("#"), count, name.startswith("#"))


_BOOK = RecipeBook(
    recipes=(
        Recipe("oak_planks", 4, (_part("oak_logs", 1),), "planks"),
        Recipe("birch_planks", 4, (_part("birch_logs", 1),), "planks"),
        Recipe("stick", 4, (_part("#planks", 2),), "sticks"),
        Recipe("stick", 1, (_part("bamboo", 2),)),
        Recipe("ladder", 3, (_part("stick", 7),)),
        Recipe("loom", 1, (_part("#planks", 2), _part("string", 2))),
    ),
    items=frozenset(
        ["oak_logs", "birch_logs", "bamboo", "string", "stick", "ladder", "loom", "oak_planks", "birch_planks"]
    ),
    tags=frozenset({"planks", "sticks"}),
    tag_of={"oak_planks": "planks", "birch_planks": "planks", "stick": "sticks"},
)


def _game(goal: str = "ladder", variant: str = "agentgym", book: RecipeBook = _BOOK, lines=None) -> Game:
    lines = [recipe.line for recipe in book.recipes] if lines is None else lines
    payload = write_game(goal, variant, lines, write_book(book))
    return Game(f"{variant}/{goal}", "textcraft", "train", "depth_3", f"Craft {goal}.", payload)


def _play(*commands: str, **game) -> list[str]:
    world = TextCraft()
    world.reset(_game(**game))
    return [world.step(command).text for command in commands]


def test_the_first_observation_lists_the_recipes_and_names_the_goal() -> None:
    seen = TextCraft().reset(_game(goal="stick", lines=["craft 4 stick using 2 planks"]))
    assert seen.text == "Crafting commands:\ncraft 4 stick using 2 planks\n\nGoal: craft stick."
    assert (seen.reward, seen.done) == (0.0, False)


def test_crafting_the_goal_pays_one_and_ends() -> None:
    world = TextCraft()
    world.reset(_game(goal="oak_planks"))
    assert world.step("get 1 oak logs")[2:] == (0.0, False)
    assert world.step("craft 4 oak planks using 1 oak logs")[2:] == (1.0, True)
    assert world.step("inventory")[2:] == (0.0, False)


@pytest.mark.parametrize(
    ("commands", "reply"),
    [
        (["inventory"], "Inventory: You are not carrying anything."),
        (["get 007 oak_logs"], "Got 7 oak_logs"),
        (["get 0 bamboo", "inventory"], "Inventory: [bamboo] (0) "),
        (["get 1 bamboo\nand more", "inventoryx"], "Inventory: [bamboo] (1) "),
        (["get 2 planks"], "Could not find planks"),
        (["get 2 stick"], "Could not find stick"),
        (["get 2 bamboo "], "Could not find bamboo "),
        (["get 2 oak  logs"], "Could not find oak  logs"),
        ([" get 1 bamboo"], "Could not execute  get 1 bamboo"),
        (["Get 1 bamboo"], "Could not execute Get 1 bamboo"),
        (["get ２ bamboo"], "Could not execute get ２ bamboo"),
        (["get " + "9" * 5000 + " bamboo"], "Could not execute get " + "9" * 5000 + " bamboo"),
        (["craft stick from 2 bamboo"], "Could not execute craft stick from 2 bamboo"),
        (["craft stick using bamboo"], "Wrong item format: bamboo"),
        (["craft stick using "], "Wrong item format: "),
        (["craft 9 stick using 2 bamboo"], "Could not find enough items to craft minecraft:stick"),
        (["craft 4 planks using 1 oak logs"], "Could not find enough items to craft None"),
        (["get 2 bamboo", "craft 9 stick using  2 bamboo "], "Crafted 1 minecraft:stick"),
        (["get 2 bamboo", "craft stick using 1 bamboo, 1 bamboo"], "count=1)"),
        (["get 1 bamboo", "craft loom using using 1 bamboo"], "item_id='minecraft:loom_using'), count=1)"),
        (["get 1 bamboo", "craft it's using 1 bamboo"], 'ItemTag(tag=None, item_id="minecraft:it\'s"), count=1)'),
        (["get 1 bamboo", "craft 2 planks using 1 bamboo"], "ItemTag(tag='minecraft:planks', item_id=None), count=2)"),
    ],
)
def test_the_rules_by_example(commands: list[str], reply: str) -> None:
    assert _play(*commands)[-1].endswith(reply)


def test_a_family_takes_one_of_its_members_and_no_mixture() -> None:
    got = (
        "get 1 oak logs",
        "get 1 birch logs",
        "craft oak planks using 1 oak logs",
        "craft birch planks using 1 birch logs",
    )
    assert _play(*got, "craft stick using 1 oak planks, 1 birch planks")[-1].startswith("Could not find a valid recipe")
    assert _play(*got, "craft stick using 2 planks")[-1] == "Could not find enough items to craft minecraft:stick"
    assert _play(*got, "craft 4 stick using 2 birch planks")[-1] == "Crafted 4 minecraft:stick"


def test_only_adapts_reset_lets_a_goal_be_crafted_as_what_it_takes() -> None:
    commands = "get 2 bamboo", "craft 3 ladder using 2 bamboo"
    assert _play(*commands, variant="adapt")[-1] == "Crafted 1 minecraft:stick"
    assert _play(*commands)[-1].startswith("Could not find a valid recipe for")


def test_an_item_that_a_recipe_takes_twice_must_be_held_twice() -> None:
    twice = Recipe("raft", 1, (_part("#planks", 1), _part("oak_planks", 1)))
    book = replace(_BOOK, recipes=(*_BOOK.recipes, twice), items=_BOOK.items | {"raft"})
    made = "get 1 oak logs", "craft oak planks using 1 oak logs", "craft stick using 2 oak planks"
    raft = "craft raft using 1 oak planks, 1 oak planks"
    assert _play(*made, raft, raft, book=book)[-2:] == [
        "Crafted 1 minecraft:raft",
        "Could not find enough items to craft minecraft:raft",
    ]


def test_admissible_commands_mean_something_and_are_spelt_as_the_world_takes_them() -> None:
    world, lines = TextCraft(), ["craft 4 stick using 2 planks", "craft 4 oak planks using 1 oak logs"]
    seen = world.reset(_game(goal="stick", lines=lines))
    gets = tuple(f"get {number} oak logs" for number in (1, 2, 3, 4))
    in_sight = {"craft 4 oak planks using 1 oak logs", "craft 4 stick using 2 planks"}
    in_sight |= {"craft oak planks using 1 oak logs", "craft stick using 2 planks"}
    assert seen.admissible == (*sorted(in_sight), *gets, "inventory")
    assert world.step("get 1 oak logs").admissible == seen.admissible
    seen = world.step("craft oak planks using 1 oak logs")
    assert seen.text == "Crafted 4 minecraft:oak_planks"
    with_a_member = {"craft 4 stick using 2 oak planks", "craft stick using 2 oak planks"}
    assert seen.admissible == (*sorted(in_sight | with_a_member), *gets, "inventory")


@pytest.mark.parametrize("game", generate_games(8, 3, "train"), ids=lambda game: game.kind)
def test_every_admissible_command_is_accepted_or_asks_for_what_is_not_held(game: Game) -> None:
    world, rng = TextCraft(), random.Random(game.id)
    seen = world.reset(game)
    for _ in range(30):
        assert list(seen.admissible) == sorted(set(seen.admissible))
        for command in seen.admissible:
            answers = ("Got ", "Crafted ", "Inventory: ", "Could not find enough items to craft ")
            assert world.clone().step(command).text.startswith(answers)
        seen = world.step(rng.choice(seen.admissible))


def test_a_clone_and_its_original_part_ways() -> None:
    world = TextCraft()
    world.reset(_game())
    world.step("get 2 bamboo")
    twin, key = world.clone(), world.state_key()
    twin.step("craft stick using 2 bamboo")
    assert (world.held, world.state_key()) == ({"bamboo": 2}, key)
    assert twin.state_key() != key


def test_keys_are_equal_exactly_for_equal_inventories_in_order() -> None:
    keys = {}
    for commands in (["get 1 bamboo", "get 1 string"], ["get 1 string", "get 1 bamboo"], ["get 0 bamboo"], ["dance"]):
        world = TextCraft()
        world.reset(_game())
        for command in commands:
            world.step(command)
        keys[world.step("inventory").text] = world.state_key()
    assert len(set(keys.values())) == 4
    world.step("get 2 bamboo")
    world.step("get 1 string")
    world.step("craft stick using 2 bamboo")
    shorter = TextCraft()
    shorter.reset(_game())
    for command in ("get 1 string", "get 2 bamboo", "craft stick using 2 bamboo"):
        shorter.step(command)
    assert world.held == shorter.held
    assert world.state_key() == shorter.state_key()


def test_states_of_two_games_never_share_a_key() -> None:
    world, other = TextCraft(), TextCraft()
    world.reset(_game())
    other.reset(replace(_game(), id="another"))
    assert world.state_key() != other.state_key()


_KEY = """
import json, sys
from agentprm_core.types import Game
from agentprm_core.worlds import make_world
world = make_world("textcraft")
world.reset(Game(**json.load(sys.stdin)))
world.step("get 2 bamboo")
print(world.state_key())
"""


def test_keys_are_the_same_in_every_process() -> None:
    world = TextCraft()
    world.reset(_game())
    world.step("get 2 bamboo")
    elsewhere = subprocess.run(
        [sys.executable, "-c", _KEY],
        input=json.dumps(asdict(_game())),
        env=os.environ | {"PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert elsewhere.stdout.strip() == world.state_key()


def _slow(game: Game) -> SlowTextCraft:
    head, book = map(json.loads, game.payload.split("\n"))
    compiled = compile_game(game.payload)
    recipes = [
        (output, count, [(name.removeprefix("#"), number, name.startswith("#")) for name, number in parts], tag)
        for output, count, tag, *parts in book["recipes"]
    ]
    rest = compiled.book.items, book["tags"], book["tag_of"]
    return SlowTextCraft(recipes, *rest, head["goal"], head["variant"] == "adapt")


def _hold_to_the_rules(game: Game, commands: list[str]) -> None:
    world, slow = TextCraft(), _slow(game)
    world.reset(game)
    for command in commands:
        seen = world.step(command)
        assert (seen.text, seen.reward, seen.done) == slow.step(command), command
        assert list(map(list, world.held.items())) == slow.inventory


_WORDS = (
    "oak_logs,oak logs,oak planks,planks,stick,sticks,bamboo,string,ladder,loom,birch planks,bam'boo,,2,minecraft:stick"
)
_NUMBERS = ("0 ", "1 ", "2 ", "02 ", "7 ", "", "-1 ", "1.5 ")
_ITEMS = st.builds(str.__add__, st.sampled_from(_NUMBERS), st.sampled_from(_WORDS.split(",")))
_TAILS = st.sampled_from(("", " ", "\n", ".", " using 2 bamboo", "\ncraft x using 1 y"))
_COMMANDS = st.one_of(
    st.builds("get {}{}".format, _ITEMS, _TAILS),
    st.builds(
        "craft {} using {}{}".format,
        _ITEMS,
        st.lists(_ITEMS, min_size=1, max_size=3).map(", ".join) | _ITEMS.map(" {} ".format),
        _TAILS,
    ),
    st.sampled_from(("inventory", "inventory please", " inventory", "get 8 bamboo", "get 2 oak logs", "get 4 string")),
    st.sampled_from([recipe.line for recipe in _BOOK.recipes]),
    st.sampled_from(("craft 4 stick using 2 oak planks", "craft loom using 2 string, 2 oak planks")),
    st.text(max_size=12),
)


@settings(max_examples=300)
@given(st.sampled_from(("adapt", "agentgym")), st.lists(_COMMANDS, max_size=25))
def test_any_text_is_answered_as_the_rules_have_it(variant: str, commands: list[str]) -> None:
    _hold_to_the_rules(_game(variant=variant), commands)


@pytest.mark.parametrize("game", generate_games(12, 5, "unseen"), ids=lambda game: game.id)
def test_random_play_of_generated_games_is_as_the_rules_have_it(game: Game) -> None:
    _hold_to_the_rules(game, _wander(game, random.Random(game.id), 60))


def _wander(game: Game, rng: random.Random, steps: int) -> list[str]:
    """Admissible commands, and lines and ingredients mixed up."""
    world, commands = TextCraft(), []
    seen, lines = world.reset(game), compile_game(game.payload).lines
    for _ in range(steps):
        line, other = rng.choice(lines), rng.choice(lines)
        mixed = f"{line.partition(' using ')[0]} using {other.partition(' using ')[2]}"
        turned = line.partition(" using ")[0] + " using " + ", ".join(line.partition(" using ")[2].split(", ")[::-1])
        commands.append(rng.choice((rng.choice(seen.admissible), rng.choice(seen.admissible), line, mixed, turned)))
        seen = world.step(commands[-1])
    return commands


@needs_data
def test_the_published_dialogues_hold_in_every_reply() -> None:
    with lzma.open(DATA / RECORDS, "rt") as lines:
        report = check(json.loads(line) for line in lines)
    assert report.dialogues > 100
    assert (report.mismatches, report.first) == (0, None)


@needs_data
def test_random_play_of_published_games_is_as_the_rules_have_it() -> None:
    for split in ("adapt", "agentgym"):
        for game in load_published(DATA, split)[::20]:
            _hold_to_the_rules(game, _wander(game, random.Random(game.id), 60))


@needs_data
def test_the_lists_that_adapts_reset_extends_are_those_of_the_literal_walk() -> None:
    for game in load_published(DATA, "adapt")[::4]:
        compiled, slow = compile_game(game.payload), _slow(game)
        extended = extended_lists(compiled.book, compiled.goal)
        for name, found in slow.lists.items():
            told = [
                (each.output, each.count, [tuple(part) for part in each.ingredients]) for each in compiled.lists[name]
            ]
            first_times = [each for at, each in enumerate(found) if each not in found[:at]]
            assert [each for at, each in enumerate(told) if each not in told[:at]] == first_times, (game.id, name)
        assert extended


@needs_data
def test_the_published_splits_are_as_published_and_ask_for_different_goals() -> None:
    spec = world_spec("textcraft")
    splits = {name: spec.load(DATA, name, None) for name in ("adapt", "agentgym", "agentgym-test", "agentgym-train")}
    kinds = {name: Counter(game.kind for game in games) for name, games in splits.items()}
    assert kinds["adapt"] == {"depth_2": 77, "depth_3": 112, "depth_4": 11}
    assert kinds["agentgym"] == {"depth_1": 125, "depth_2": 291, "depth_3": 117, "depth_4": 11}
    train, test = ({game.goal for game in splits[f"agentgym-{name}"]} for name in ("train", "test"))
    assert (len(splits["agentgym-test"]), len(train & test)) == (100, 0)
    assert not train & {game.goal for game in splits["adapt"]}
    assert spec.load(DATA, "adapt", 3) == sample_of(splits["adapt"], 3)
    assert not list(game_faults(spec, {"train": splits["agentgym-train"], "unseen": splits["adapt"]}))


@needs_data
def test_a_plan_needs_no_more_actions_than_the_reference_planner() -> None:
    for split, within in (("adapt", 186), ("agentgym", 527)):
        actions = [solves(TextCraft(), game, 60) for game in load_published(DATA, split)]
        assert None not in actions
        assert sum(each <= 20 for each in actions) >= within


def test_what_cannot_be_played_is_refused_by_name_and_reason() -> None:
    game = _game()
    for payload, reason in (
        (game.payload[:40], "first line cannot be read"),
        (game.payload[:-40], "book of recipes cannot be read .* make the games anew"),
        (game.payload.replace('"agentgym"', '"mine"'), "variant 'mine' is not one of adapt, agentgym"),
        (game.payload.replace('"goal":"ladder"', '"goal":"castle"'), "goal 'castle' is not among the 5 items"),
        (
            game.payload.replace("craft 3 ladder using", "craft 3 ladder of"),
            "'craft 3 ladder of 7 stick' is no",
        ),
        (game.payload.replace('["stick",7]', '["stick",0]'), "recipe of ladder takes or makes nothing"),
        (game.payload.replace('["stick",7]', '["ladder",7]'), "ladder is made from itself: ladder from ladder"),
        (game.payload.replace('["bamboo",2]', '["ladder",2]'), "made from itself: stick from ladder from stick"),
    ):
        with pytest.raises(UnsupportedGame, match=rf"TextCraft cannot play agentgym/ladder: .*{reason}"):
            TextCraft().reset(replace(game, payload=payload))
