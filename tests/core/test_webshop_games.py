"""Catalogues and games of WebShop: splits, payloads, files that are cut."""

from __future__ import annotations

import json
import re
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentprm_core.errors import DataError
from agentprm_core.worlds import world_spec
from agentprm_core.worlds.base import Between, OneOf, UnsupportedGame
from agentprm_core.worlds.webshop import catalogue as catalogues
from agentprm_core.worlds.webshop import dialogues
from agentprm_core.worlds.webshop.catalogue import INSTRUCTIONS, PRODUCTS, ROOT, catalogue, read_products
from agentprm_core.worlds.webshop.games import CATALOGUES, KINDS, SPLITS, generate_games, load_games
from agentprm_core.worlds.webshop.generate import COUNT, generate_products
from agentprm_core.worlds.webshop.goals import NO_LIMIT, make_goals

_ENTRY = {
    "asin": "B000000001",
    "Title": "Acme Shirt",
    "Description": "Soft.",
    "BulletPoints": ["Warm"],
    "options": {"size": ["small", "large"], "color": ["red"]},
    "pricing": [10.0],
    "category": "fashion",
    "query": "shirts",
    "product_category": "Clothing › Shirts",
    "Attributes": ["warm"],
}


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    """A folder with one product that has an instruction and one, too dear for a limit, that has one too."""
    entries = [_ENTRY, _ENTRY | {"asin": "B000000002", "pricing": [985.0, 999.0], "options": {}}]
    told = {
        entry["asin"]: {"instruction": "Find me warm shirts", "instruction_attributes": ["warm"]} for entry in entries
    }
    (tmp_path / PRODUCTS).write_text(json.dumps(entries))
    (tmp_path / INSTRUCTIONS).write_text(json.dumps(told))
    return tmp_path


def test_goals_name_options_by_name_and_a_limit(pack: Path) -> None:
    goals = sorted(make_goals(read_products(pack)), key=lambda goal: goal.instruction)
    assert [goal.asin for goal in goals] == ["B000000002", "B000000001", "B000000001"]
    assert goals[0].instruction == "Find me warm shirts"
    assert goals[0].price_upper == NO_LIMIT
    assert goals[1].options == {"color": "red", "size": "large"}
    limit = goals[1].price_upper
    assert limit in (30.0, 40.0, 50.0)
    assert goals[1].instruction == (
        f"Find me warm shirts with color: red, and size: large, and price lower than {limit:.2f} dollars"
    )


def test_a_pack_is_read_from_an_archive_too(pack: Path, tmp_path: Path) -> None:
    archive = tmp_path / "pack.tar.xz"
    with tarfile.open(archive, "w:xz") as opened:
        opened.add(pack / PRODUCTS, f"./{PRODUCTS}")
        opened.add(pack / INSTRUCTIONS, f"./{INSTRUCTIONS}")
    assert read_products(archive) == read_products(pack)


def test_a_product_file_cut_in_half_says_so(pack: Path) -> None:
    text = (pack / PRODUCTS).read_text()
    (pack / PRODUCTS).write_text(text[: len(text) // 2])
    with pytest.raises(DataError, match=rf"{PRODUCTS} of {pack} is cut .* fetch the pack again"):
        read_products(pack)


def test_an_archive_cut_in_half_says_so(pack: Path, tmp_path: Path) -> None:
    archive = tmp_path / "pack.tar.xz"
    with tarfile.open(archive, "w:xz") as opened:
        opened.add(pack / PRODUCTS, PRODUCTS)
    archive.write_bytes(archive.read_bytes()[: archive.stat().st_size // 2])
    with pytest.raises(DataError, match=rf"{PRODUCTS} of {archive} is cut"):
        read_products(archive)


def test_a_product_without_a_field_says_which(pack: Path) -> None:
    (pack / PRODUCTS).write_text(json.dumps([{name: value for name, value in _ENTRY.items() if name != "pricing"}]))
    with pytest.raises(DataError, match="product 0 lacks 'pricing'"):
        read_products(pack)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"Title": None}, "Title is None, not a text"),
        ({"asin": 5}, "asin is 5, not a text"),
        ({"pricing": []}, r"pricing is \[\], not one price or two"),
        ({"pricing": "12"}, "pricing is '12', not a list of int or float"),
        ({"pricing": ["a"]}, r"pricing is \['a'\], not a list of int or float"),
        ({"options": {"colour": "red"}}, "colour is 'red', not a list of str"),
        ({"options": None}, "options is None, not an object"),
        ({"options": "zzz"}, "options is 'zzz', not an object"),
        ({"options": ["a", 3]}, r"options is \['a', 3\], not an object"),
    ],
)
def test_a_damaged_product_says_which_field(pack: Path, change: dict, said: str) -> None:
    (pack / PRODUCTS).write_text(json.dumps([_ENTRY | change]))
    with pytest.raises(DataError, match=rf"{PRODUCTS} of {pack}: product 0 is damaged: {said}; fetch the pack again"):
        read_products(pack)


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"instruction": 3}, "instruction is 3, not a text"),
        ({"instruction_attributes": "abc"}, "instruction_attributes is 'abc', not a list of str"),
        ({"instruction_attributes": [1]}, r"instruction_attributes is \[1\], not a list of str"),
        ([1], r"B000000001 is \[1\], not an object"),
    ],
)
def test_a_damaged_instruction_says_which_field(pack: Path, told: object, said: str) -> None:
    (pack / INSTRUCTIONS).write_text(json.dumps({"B000000001": told}))
    with pytest.raises(DataError, match=rf"{INSTRUCTIONS} of {pack}: the entry B000000001 is damaged: {said}; fetch"):
        read_products(pack)


def test_a_product_that_is_there_twice_is_refused(pack: Path) -> None:
    (pack / PRODUCTS).write_text(json.dumps([_ENTRY, _ENTRY | {"asin": "B000000002"}, _ENTRY]))
    with pytest.raises(DataError, match=f"{PRODUCTS} of {pack}: products 0 and 2 are both B000000001; fetch the pack"):
        read_products(pack)


def test_a_pack_with_nothing_in_it_is_refused(pack: Path) -> None:
    (pack / PRODUCTS).write_text("[]")
    with pytest.raises(DataError, match="with something in them"):
        read_products(pack)


def test_no_pack_says_what_to_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=rf"{tmp_path} holds neither {PRODUCTS} .*; put it there, or name the folder"):
        read_products(tmp_path)
    monkeypatch.setenv(ROOT, str(tmp_path / "nowhere"))
    catalogue.cache_clear()
    with pytest.raises(DataError, match=f"no published catalogue at .*nowhere; set {ROOT}"):
        catalogue("published")
    monkeypatch.setenv(ROOT, str(tmp_path))
    with pytest.raises(DataError, match=f"no published catalogue at {tmp_path}; set {ROOT} to the folder or .tar.xz"):
        catalogue("published")
    with pytest.raises(DataError, match="catalogue 'mine' is neither 'published' nor 'generated-SEED'"):
        catalogue("mine")


def test_products_are_found_beside_the_records_where_they_are_nowhere_else(
    pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ROOT, "")
    monkeypatch.setattr(catalogues, "_BESIDE", tmp_path / "nowhere")
    dialogues.look_beside(tmp_path / "empty")
    with pytest.raises(DataError, match=f"no published catalogue at {tmp_path / 'nowhere'}; set {ROOT}"):
        catalogues.published_root()
    dialogues.look_beside(pack)
    assert catalogues.published_root() == pack
    dialogues.look_beside(tmp_path / "other")
    assert catalogues.published_root() == pack


def test_a_generated_catalogue_is_its_seeds() -> None:
    products = generate_products(5)
    assert products == generate_products(5)
    assert products != generate_products(6)
    assert len({product.asin for product in products}) == COUNT


def test_a_generated_price_has_cents_and_nothing_below() -> None:
    tags = [product.price_tag for seed in range(3) for product in generate_products(seed)]
    assert [tag for tag in tags if not re.fullmatch(r"\$\d+\.99( to \$\d+\.99)?", tag)] == []


def test_splits_share_no_goal_and_unseen_no_product() -> None:
    games = {split: generate_games(400, 1, split) for split in SPLITS}
    goals = {split: {game.goal for game in games[split]} for split in SPLITS}
    ids = {split: {game.id for game in games[split]} for split in SPLITS}
    products = {split: {game.attributes["product"] for game in games[split]} for split in SPLITS}
    assert not ids["train"] & ids["seen"]
    assert not goals["unseen"] & (goals["train"] | goals["seen"])
    assert not products["unseen"] & (products["train"] | products["seen"])
    assert products["seen"] & products["train"]


def test_generated_games_are_sorted_small_and_what_the_gate_expects() -> None:
    spec, games = world_spec("webshop"), generate_games(300, 2, "train")
    assert games == generate_games(300, 2, "train")
    assert [game.id for game in games] == sorted({game.id for game in games})
    assert {game.kind for game in games} == set(KINDS) == set(spec.kinds)
    assert max(len(game.payload) for game in games) < 1000
    expected = spec.attributes["constraints"]
    assert isinstance(expected, Between)
    assert all(expected.low <= game.attributes["constraints"] <= expected.high for game in games)


def test_many_games_are_of_several_catalogues_and_few_of_the_first() -> None:
    few, many = generate_games(400, 1, "train"), generate_games(12_000, 1, "train")
    assert {game.attributes["catalogue"] for game in few} == {CATALOGUES[0]}
    assert {game.attributes["catalogue"] for game in many} == {f"generated-{n}" for n in range(3)}
    expected = world_spec("webshop").attributes["catalogue"]
    assert isinstance(expected, OneOf) and {f"generated-{n}" for n in range(3)} <= set(expected.values)
    assert len({game.id for game in many}) == 12_000
    bought = {game.attributes["product"] for game in many}
    assert not bought & {game.attributes["product"] for game in generate_games(1000, 1, "unseen")}
    world = world_spec("webshop").make()
    for game in many[:: len(many) // 5]:
        assert world.reset(game).text


def test_more_games_than_there_are_and_an_unknown_split_say_so() -> None:
    with pytest.raises(DataError, match=r"100000 games of split 'seen', there are .*lower games.seen"):
        generate_games(100_000, 0, "seen")
    with pytest.raises(DataError, match="split 'test' is not one of train, seen, unseen"):
        generate_games(1, 0, "test")


@pytest.fixture
def played(pack: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The pack, which worlds read their products from."""
    monkeypatch.setenv(ROOT, str(pack))
    catalogue.cache_clear()
    yield pack
    catalogue.cache_clear()


def test_published_games_of_products_that_worlds_would_not_read_are_refused(
    pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    monkeypatch.setenv(ROOT, str(other))
    not_there = f"played with the products at {other}, which are not there: set {ROOT} to {pack}$"
    with pytest.raises(DataError, match=not_there):
        load_games(pack, "train", None)
    other.mkdir()
    with pytest.raises(DataError, match=not_there):
        load_games(pack, "train", None)
    shutil.copytree(pack, other, ignore=shutil.ignore_patterns("other"), dirs_exist_ok=True)
    assert load_games(pack, "train", None) == load_games(other, "train", None)
    (other / PRODUCTS).write_text(json.dumps([_ENTRY]))
    with pytest.raises(
        DataError, match=f"played with the products at {other}, which are others: set {ROOT} to {pack}$"
    ):
        load_games(pack, "train", None)


def test_a_game_of_other_products_is_not_played(played: Path) -> None:
    (game, *_) = [game for split in SPLITS for game in load_games(played, split, None)]
    world = world_spec("webshop").make()
    assert "Find me warm shirts" in world.reset(game).text
    (played / PRODUCTS).write_text(json.dumps([_ENTRY | {"Title": "Acme Shoes"}]))
    catalogue.cache_clear()
    with pytest.raises(UnsupportedGame, match=f"it was made of other products than those at {played}; set {ROOT} to"):
        world.reset(game)


def test_published_games_are_the_first_goals_of_their_split(played: Path) -> None:
    pack = played
    games = [game for split in SPLITS for game in load_games(pack, split, None)]
    assert sorted(game.id for game in games) == [f"webshop/published/{n:05d}" for n in range(3)]
    assert all(len(load_games(pack, split, 1)) <= 1 for split in SPLITS)
