"""TextCraft's games: the reader of recipe files, the generator and its splits, the expert, the tokenizer's words."""

from __future__ import annotations

import io
import json
import lzma
import pickle
import random
import re
import tarfile
from pathlib import Path

import pytest

from agentprm_core.errors import DataError
from agentprm_core.policy.tokenizer import ENTITY, train_tokenizer
from agentprm_core.types import Game
from agentprm_core.worlds import world_spec
from agentprm_core.worlds.base import NothingLeft
from agentprm_core.worlds.demonstrations import demonstrate
from agentprm_core.worlds.textcraft import pack
from agentprm_core.worlds.textcraft.compiled import compile_game, write_game
from agentprm_core.worlds.textcraft.engine import TextCraft
from agentprm_core.worlds.textcraft.expert import Expert
from agentprm_core.worlds.textcraft.names import FORMS, MATERIALS, goals_of, names_of
from agentprm_core.worlds.textcraft.pack import ARCHIVE, VARIABLE, find_pack, load_book, make_book
from agentprm_core.worlds.textcraft.planner import solves
from agentprm_core.worlds.textcraft.published import RECORDS, load_published, published_game
from agentprm_core.worlds.textcraft.recipes import (
    Ingredient,
    MadeFromItself,
    Recipe,
    RecipeBook,
    read_book,
    write_book,
)
from benchmarks.worlds import measure

SPEC = world_spec("textcraft")
SPLITS = ("train", "seen", "unseen")


def _shaped(output: str, pattern: list[str], count: int | None = None, group: str | None = None, **key) -> dict:
    result = {"item": f"minecraft:{output}"} | ({} if count is None else {"count": count})
    more = {} if group is None else {"group": group}
    return {"type": "minecraft:crafting_shaped", "pattern": pattern, "key": key, "result": result} | more


def _shapeless(output: str, *ingredients, count: int | None = None, group: str | None = None) -> dict:
    made = _shaped(output, [], count, group)
    del made["pattern"], made["key"]
    return made | {"type": "minecraft:crafting_shapeless", "ingredients": list(ingredients)}


def _item(name: str) -> dict:
    return {"item": f"minecraft:{name}"}


def _tag(name: str) -> dict:
    return {"tag": f"minecraft:{name}"}


def _lines(*files: dict) -> list[str]:
    return [recipe.line for recipe in make_book((f"{at}.json", each) for at, each in enumerate(files)).recipes]


def test_amounts_are_counted_in_the_pattern_or_the_list_and_a_choice_means_its_first() -> None:
    assert _lines(
        _shaped("loom", ["@@", "##"], **{"@": _item("string"), "#": [_item("oak_planks"), _item("birch_planks")]}),
        _shapeless("book", _item("paper"), _item("leather"), _item("paper"), count=2),
        {"type": "minecraft:smelting"},
        {**_shapeless("sugar", _item("sugar_cane")), "result": "minecraft:sugar"},
    ) == [
        "craft 1 loom using 2 string, 2 oak planks",
        "craft 2 book using 2 paper, 1 leather",
        "craft 1 sugar using 1 sugar cane",
    ]


def test_a_family_without_a_craftable_member_is_an_item_that_can_be_got() -> None:
    files = (
        _shapeless("oak_planks", _tag("oak_logs"), count=4, group="planks"),
        _shapeless("stick", _tag("planks"), group="stick"),
    )
    book = make_book((f"{at}.json", each) for at, each in enumerate(files))
    assert (book.tags, book.tag_of) == ({"planks"}, {"oak_planks": "planks"})
    assert [name for name in sorted(book.items | book.tags) if book.can_get(name)] == ["oak_logs"]
    assert {name: book.depth(name) for name in ("oak_logs", "oak_planks", "planks", "stick")} == {
        "oak_logs": 0,
        "oak_planks": 1,
        "planks": 1,
        "stick": 2,
    }
    assert read_book(write_book(book)) == book


def test_blocks_are_not_taken_apart_and_of_inverse_recipes_the_first_stays() -> None:
    ingot = _shapeless("ingot", *[_item("nugget")] * 9)
    nugget = _shapeless("nugget", _item("ingot"), count=9)
    assert _lines(ingot, nugget, _shapeless("ingot", _item("iron_block"))) == ["craft 1 ingot using 9 nugget"]
    assert _lines(nugget, ingot) == ["craft 9 nugget using 1 ingot"]


def test_a_recipe_that_makes_itself_is_named() -> None:
    with pytest.raises(DataError, match=r"egg\.json: makes egg from itself: take the file out"):
        make_book([("egg.json", _shapeless("egg", _item("hen"), _item("egg")))])


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (
            {"gold.json": _shapeless("gold", _tag("shovels"), group="shovels")},
            "gold.json: shovels is made from itself: shovels from shovels: take the file out of the pack",
        ),
        (
            {
                "egg.json": _shapeless("egg", _tag("birds"), group="food"),
                "feed.json": _shapeless("feed", _item("egg")),
                "hen.json": _shapeless("hen", _item("feed"), group="birds"),
            },
            "egg.json, hen.json, feed.json: egg is made from itself: egg from birds from feed from egg: "
            "take one of these files out of the pack",
        ),
    ],
)
def test_recipes_that_lead_back_to_themselves_are_named_by_their_files(
    tmp_path: Path, files: dict[str, dict], said: str
) -> None:
    for name, content in {**files, "stick.json": _shapeless("stick", _item("log"))}.items():
        (tmp_path / name).write_text(json.dumps(content))
    with pytest.raises(DataError, match=f"^{re.escape(f'{tmp_path}: {said}')}$"):
        load_book(tmp_path, "adapt")


def test_a_circle_in_a_book_comes_through_between_processes() -> None:
    circle = RecipeBook((Recipe("egg", 1, (Ingredient("egg", 1),)),), frozenset(["egg"]), frozenset(), {})
    with pytest.raises(MadeFromItself, match="egg is made from itself: egg from egg") as raised:
        read_book(write_book(circle))
    again = pickle.loads(pickle.dumps(raised.value))
    assert (str(again), again.recipes) == (str(raised.value), raised.value.recipes)


@pytest.mark.parametrize(
    ("file", "said"),
    [
        (_shapeless("egg", _item("egg")), "egg.json: makes egg from itself: take the file out of the pack"),
        ({"recipe": 1}, "egg.json: no recipe as Minecraft"),
        ({"type": "minecraft:smelting"}, "not one recipe for the crafting table"),
    ],
)
def test_what_is_wrong_with_a_recipe_is_said_with_its_folder(tmp_path: Path, file: dict, said: str) -> None:
    (tmp_path / "egg.json").write_text(json.dumps(file))
    with pytest.raises(DataError) as raised:
        load_book(tmp_path, "adapt")
    assert str(raised.value).startswith(f"{tmp_path}: {said}")


@pytest.mark.parametrize(
    "broken",
    [
        {"recipe": 1},
        _shapeless("egg"),
        _shapeless("egg", {"thing": "x"}),
        _shapeless("egg", {"item": "mod:hen"}),
        _shaped("egg", ["##"], **{"@": _item("hen")}),
        _shapeless("egg", _item("hen")) | {"result": {"item": "minecraft:egg", "count": 0}},
        _shapeless("egg", _item("hen")) | {"result": {"item": "minecraft:egg", "count": float("inf")}},
        _shapeless("egg", _item("hen")) | {"group": 5},
        _shapeless("egg", _item("hen")) | {"group": ["food"]},
    ],
)
def test_a_file_that_is_no_recipe_is_named(broken: dict) -> None:
    with pytest.raises(DataError, match=r"egg\.json: no recipe as Minecraft .*: mend it, or take the file out"):
        make_book([("egg.json", broken)])


def _archive(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:xz") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(f"recipes/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path


def _pack_files() -> dict[str, bytes]:
    rng = random.Random(0)
    return {
        f"thing_{at}.json": json.dumps(_shapeless(f"thing_{at}", _item(f"part_{rng.random()}"))).encode()
        for at in range(50)
    }


def test_a_pack_is_read_from_an_archive_and_from_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = _archive(tmp_path / ARCHIVE, _pack_files())
    folder = tmp_path / "recipes"
    folder.mkdir()
    for name, content in _pack_files().items():
        (folder / name).write_bytes(content)
    assert load_book(archive, "adapt") == load_book(folder, "adapt") == load_book(tmp_path, "agentgym")
    monkeypatch.delenv("TEXTCRAFT_RECIPES", raising=False)
    assert find_pack(tmp_path) == archive
    monkeypatch.setenv("TEXTCRAFT_RECIPES", str(folder))
    assert find_pack() == folder


def test_a_pack_cut_in_half_says_so(tmp_path: Path) -> None:
    whole = _archive(tmp_path / ARCHIVE, _pack_files()).read_bytes()
    (tmp_path / "half.tar.xz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"half\.tar\.xz: the archive of recipes is cut off .*: copy it again"):
        load_book(tmp_path / "half.tar.xz", "adapt")
    cut = _archive(tmp_path / "cut.tar.xz", {"egg.json": b'{"type": "minecraft:craf'})
    with pytest.raises(DataError, match=r"cut\.tar\.xz: egg\.json is cut off or broken"):
        load_book(cut, "adapt")
    with pytest.raises(DataError, match=r"nowhere: no such folder or archive of recipes: set TEXTCRAFT_RECIPES"):
        load_book(tmp_path / "nowhere", "adapt")
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        DataError, match=r"not one recipe for the crafting table .*: take the pack of Minecraft's recipes"
    ):
        load_book(tmp_path / "empty", "adapt")


def test_where_no_pack_is_the_line_names_the_variable_only_where_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.setattr(pack, "SHARED", tmp_path)
    where = f"TextCraft: neither {ARCHIVE} nor a folder recipes is in {tmp_path}: put them there, or"
    with pytest.raises(DataError, match=f"^{where} set {VARIABLE} to the folder of recipes or to {ARCHIVE}$"):
        find_pack()
    with pytest.raises(DataError, match=f"^{where} name the folder or archive that has them$"):
        find_pack(tmp_path)


def test_an_archive_of_recipes_is_taken_with_the_records_beside_it(tmp_path: Path) -> None:
    archive = _archive(
        tmp_path / "mine.tar.xz", {"sugar.json": json.dumps(_shapeless("sugar", _item("cane"))).encode()}
    )
    with pytest.raises(DataError, match=f"{tmp_path / RECORDS}: no records of TextCraft's starts"):
        load_published(archive, "adapt")
    said = "Crafting commands:\ncraft 1 sugar using 1 cane\n\nGoal: craft sugar."
    start = {"id": "adapt-000", "variant": "adapt", "goal": "minecraft:sugar", "observation": said, "kind": "start"}
    with lzma.open(tmp_path / RECORDS, "wt") as file:
        file.write(json.dumps(start))
    (game,) = load_published(archive, "adapt")
    assert (game.id, game.kind) == ("textcraft/adapt-000", "depth_1")


def test_published_games_that_cannot_be_loaded_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no published split 'test': take one of adapt, agentgym"):
        load_published(tmp_path, "test")
    archive = _archive(tmp_path / ARCHIVE, _pack_files())
    start = {"id": "adapt-000", "variant": "adapt", "goal": "minecraft:castle", "observation": "Crafting commands:\n"}
    with pytest.raises(DataError, match=r"adapt-000: no recipe of .* makes the goal 'castle': take the whole pack"):
        published_game(start, archive, "adapt")
    with pytest.raises(DataError, match=r"no record of a start: KeyError.*; take the whole of textcraft"):
        published_game({"id": "x"}, archive, "adapt")


@pytest.mark.parametrize("split", SPLITS)
def test_generated_games_are_reproducible_sorted_and_of_every_depth(split: str) -> None:
    games = SPEC.generate(12, 4, split)
    assert games == SPEC.generate(16, 4, split)[:12]
    assert [game.id for game in games] == sorted({game.id for game in games})
    assert {game.kind for game in games} == set(SPEC.kinds)
    for game in games:
        compiled = compile_game(game.payload)
        assert compiled.book.depth(compiled.goal) == game.attributes["depth"]
        assert game.goal == f"Craft {compiled.goal.replace('_', ' ')}."
        assert solves(TextCraft(), game, 16)


def _items(games: list[Game]) -> tuple[set[str], set[str]]:
    """(the goals, every item that occurs)."""
    compiled = [compile_game(game.payload) for game in games]
    return {each.goal for each in compiled}, {name for each in compiled for name in each.book.items}


def test_splits_share_no_goal_and_unseen_games_no_item() -> None:
    for one, other in (("train", "seen"), ("train", "unseen"), ("seen", "unseen")):
        assert not set(goals_of(one)) & set(goals_of(other))
    assert names_of("train") == names_of("seen")
    assert not set(names_of("train")) & set(names_of("unseen"))
    assert len({*names_of("train"), *names_of("unseen")}) == len(MATERIALS) * len(FORMS)
    for split in SPLITS:
        goals, items = _items(SPEC.generate(40, 1, split))
        assert goals <= set(goals_of(split))
        assert items <= set(names_of(split))


def test_an_unknown_split_is_named() -> None:
    with pytest.raises(DataError, match="generates the splits train, seen, unseen, not 'test'"):
        SPEC.generate(1, 0, "test")


def test_the_expert_is_the_same_for_the_same_seed() -> None:
    def played(seed: int) -> list[list[str]]:
        settings = {"world_name": "textcraft", "max_turns": 20, "seed": seed, "knowledge": 0.5}
        episodes = [demonstrate(TextCraft(), game, **settings) for game in SPEC.generate(40, 3, "seen")]
        return [[turn.action for turn in episode.turns] for episode in episodes]

    assert played(0) == played(0)
    assert played(0) != played(1)


@pytest.mark.parametrize("corrupt", [0.0, 0.2])
def test_the_expert_demonstrates_with_admissible_commands_and_after_mistakes(corrupt: float) -> None:
    won = []
    for game in SPEC.generate(24, 2, "unseen"):
        settings = {"world_name": "textcraft", "max_turns": 30, "seed": 5, "knowledge": 1.0}
        episode = demonstrate(TextCraft(), game, corrupt=corrupt, **settings)
        assert all(turn.valid for turn in episode.turns)
        won.append(episode.won)
    assert sum(won) / len(won) >= (0.8 if corrupt else 1.0)


def test_the_expert_tries_a_recipe_before_what_it_takes_is_held() -> None:
    lines = [
        "craft 1 table using 3 stick, 2 oak planks",
        "craft 2 stick using 1 planks",
        "craft 4 oak planks using 1 oak logs",
        "craft 1 boat using 5 oak planks",
    ]
    planks, oak = Ingredient("planks", 1, tag=True), Ingredient("oak_planks", 2)
    recipes = (
        Recipe("table", 1, (Ingredient("stick", 3), oak)),
        Recipe("stick", 2, (planks,)),
        Recipe("oak_planks", 4, (Ingredient("oak_logs", 1),), "planks"),
        Recipe("boat", 1, (oak._replace(count=5),)),
    )
    items = frozenset({"table", "stick", "oak_planks", "oak_logs", "boat"})
    book = RecipeBook(recipes, items, frozenset({"planks"}), {"oak_planks": "planks"})
    game = Game("x", "textcraft", "train", "depth_3", "", write_game("table", "agentgym", lines, write_book(book)))
    episode = demonstrate(TextCraft(), game, world_name="textcraft", max_turns=20, seed=0, knowledge=1.0)
    assert [turn.action for turn in episode.turns] == [
        "craft table using 3 stick, 2 oak planks",  # refused: neither is made yet
        "craft stick using 1 planks",  # refused: the first of them
        "craft oak planks using 1 oak logs",  # refused: a member of the family
        "get 1 oak logs",
        "craft oak planks using 1 oak logs",
        "craft stick using 1 oak planks",
        "craft stick using 1 oak planks",  # 3 of them are taken
        "craft table using 3 stick, 2 oak planks",
    ]
    assert episode.won


@pytest.mark.parametrize("knowledge", [0.0, 1.0])
def test_the_expert_is_refused_at_most_once_a_recipe_and_crafts_the_goal(knowledge: float) -> None:
    for game in SPEC.generate(60, 4, "train"):
        settings = {"world_name": "textcraft", "max_turns": 40, "seed": 3, "knowledge": knowledge}
        episode = demonstrate(TextCraft(), game, **settings)
        refused = [
            turn.action
            for turn, after in zip(episode.turns, episode.turns[1:])
            if after.observation.startswith("Could not")
        ]
        assert episode.won
        assert len(refused) == len(set(refused))


def test_another_expert_follows_a_plan_and_is_never_refused() -> None:
    for game in SPEC.generate(24, 4, "train"):
        settings = {"world_name": "textcraft", "max_turns": 16, "seed": 3, "knowledge": 0.0}
        episode = demonstrate(TextCraft(), game, expert="plan", **settings)
        assert episode.won
        assert not any(turn.observation.startswith("Could not") for turn in episode.turns)
    with pytest.raises(DataError, match=r"demos\.games: plans is no expert of the world textcraft; allowed: plan"):
        demonstrate(TextCraft(), game, expert="plans", **settings)


def test_the_expert_gives_up_where_the_lines_do_not_lead_to_the_goal() -> None:
    game = SPEC.generate(4, 0, "train")[3]
    head, _, book = game.payload.partition("\n")
    short = json.loads(head)
    goal = short["goal"].replace("_", " ")
    short["lines"] = [line for line in short["lines"] if f" {goal} using" not in line]
    world, blind = TextCraft(), Game("x", "textcraft", "train", "depth_4", "", json.dumps(short) + "\n" + book)
    seen = world.reset(blind)
    with pytest.raises(NothingLeft, match=f"do not lead to {goal}"):
        Expert(world, blind).act(seen)


def _texts(split: str, count: int) -> list[str]:
    texts = []
    for game in SPEC.generate(count, 6, split):
        settings = {"world_name": "textcraft", "max_turns": 20, "seed": 1, "knowledge": 1.0, "corrupt": 0.2}
        for turn in demonstrate(TextCraft(), game, **settings).turns:
            texts += [turn.observation, *turn.admissible]
    return texts


def test_the_tokenizer_of_train_games_knows_the_words_of_unseen_ones() -> None:
    tokenizer = train_tokenizer(_texts("train", 120), 4096, SPEC.phrases, SPEC.entity)
    tokens = [token for text in _texts("unseen", 40) for token in tokenizer(text)["input_ids"]]
    assert tokens.count(tokenizer.unk_token_id) / len(tokens) < 0.001
    assert tokenizer.tokenize("craft 4 oak planks using 1 oak logs, 12 stick") == [
        *("craft", "4", "oak", "planks", "using", "1", "oak", "logs", "12", "stick"),
    ]


def test_a_world_that_says_nothing_keeps_a_name_and_its_number_together() -> None:
    assert world_spec("alfworld").entity == ENTITY


def test_the_benchmark_of_worlds_measures_every_figure() -> None:
    figures = measure(SPEC, SPEC.generate(2, 0, "unseen"), 10, 0)
    assert figures["steps_per_s"] > 0
    assert figures["episode_kb"] < 20
