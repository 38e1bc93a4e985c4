"""WebShop as a world, on the generated catalogue: pages, clicks, keys, clones, the shopper."""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentprm_core.types import Game
from agentprm_core.worlds import UnsupportedGame, make_world, world_spec
from agentprm_core.worlds.base import OPEN, Observation
from agentprm_core.worlds.demonstrations import demonstrate
from agentprm_core.worlds.webshop.catalogue import Catalogue
from agentprm_core.worlds.webshop.engine import WebShopWorld
from agentprm_core.worlds.webshop.expert import Shopper, Wish, read_goal
from agentprm_core.worlds.webshop.games import CATALOGUES, generate_games, read_task
from agentprm_core.worlds.webshop.pages import Pages, parse, thanks
from agentprm_core.worlds.webshop.product import Product

_LAMP = Product(
    asin="B0LAMP0001",
    title="Acme Lamp",
    description="",
    bullets=("Bright", "", "Small"),
    options={"color": ("red", "Blue"), "size": ("10", "red")},
    prices=(2.5, 4.0),
    category="garden",
    query="lamps",
    product_category="Home › Lamps",
    attributes=("steel",),
)


@pytest.fixture(scope="module")
def games() -> list[Game]:
    return generate_games(40, 3, "train")


@pytest.fixture
def opened(games: list[Game]) -> WebShopWorld:
    """A session at a product that has the two options that the goal names."""
    game, world = next(game for game in games if game.kind == "two options"), WebShopWorld()
    seen, shopper = world.reset(game), Shopper(game.goal)
    while not all(f"click[{option}]" in seen.admissible for option in read_goal(game.goal).options):
        seen = world.step(shopper.act(seen))
    return world


def test_pages_say_what_the_published_ones_say() -> None:
    pages = Pages(Catalogue("test", [_LAMP]))
    item = pages.item(0)
    assert item.rest == (
        " [SEP] Back to Search [SEP] < Prev [SEP] color [SEP] red [SEP] Blue [SEP] size [SEP] 10 [SEP] red [SEP] Acme "
        "Lamp [SEP] Price: $2.5 to $4.0 [SEP] Rating: N.A. [SEP] Description [SEP] Features [SEP] Reviews [SEP] Buy Now"
    )
    assert list(item.clickables) == [
        *("back to search", "< prev", "description", "features", "reviews", "buy now", "red", "Blue", "10")
    ]
    assert item.clickables["red"] == ("option", "size"), "of equal texts the last one counts"
    assert "click[Blue]" not in item.admissible, "an argument is lowered, so this value can never be clicked"
    assert pages.sub_page(0, "description").rest == " [SEP] Back to Search [SEP] < Prev"
    assert pages.sub_page(0, "features").rest.endswith("< Prev [SEP] Bright [SEP]  [SEP] Small"), (
        "it has a blank before each"
    )
    assert pages.results((0,), 1).rest == (
        " [SEP] Back to Search [SEP] Page 1 (Total results: 1) [SEP] Next > [SEP] B0LAMP0001 [SEP] Acme Lamp "
        "[SEP] $2.5 to $4.0"
    )
    assert pages.results((0,), 2).rest == (
        " [SEP] Back to Search [SEP] Page 2 (Total results: 1) [SEP] < Prev [SEP] Next >"
    )


def test_debug_searches() -> None:
    shop = Catalogue("test", [_LAMP, replace(_LAMP, asin="B0LAMP0002", query="desk lamps")])
    assert shop.find("<q> desk lamps") == (1,)
    assert shop.find("<c> garden") == (0, 1)
    assert shop.find("<c> beauty") == ()
    assert sorted(shop.find("<r>")) == [0, 1]
    assert shop.find("<a> steel") is None
    assert shop.find("<c>") is None


@pytest.mark.parametrize(
    ("action", "read"),
    [
        ("search[Red Shoes]", ("search", "red shoes")),
        ("search[red [shoes]]", ("search[red ", "shoes]")),
        ("click[a] click[b]", ("click[a] click", "b")),
        ("click[a] and more", ("click", "a")),
        ("click[]", None),
        ("buy now", None),
    ],
)
def test_actions_are_read_greedily(action: str, read: tuple[str, str] | None) -> None:
    assert parse(action) == read


def test_chosen_options_are_shown_as_the_published_page_escapes_them() -> None:
    text = thanks("B1", {"size": "5' & <6\"", "color": "rosé"}, 0.5)
    assert r'options [SEP] {"color": "ros\u00e9", "size": "5\u0027 \u0026 \u003c6\""} [SEP]' in text
    assert " [SEP] 0.5 [SEP] Reward Details" in text


def test_reset_shows_the_search_page(games: list[Game]) -> None:
    seen = make_world("webshop").reset(games[0])
    assert seen.text == f"WebShop [SEP] Instruction: [SEP] {games[0].goal} [SEP] Search"
    assert seen.admissible == (f"search[{OPEN}]",)


def test_options_stay_on_sub_pages_and_go_with_the_results(opened: WebShopWorld) -> None:
    opened.step(f"click[{opened.clickables[-1]}]")
    chosen = opened.state.options
    assert len(chosen) == 1
    assert "click[buy now]" not in opened.step("click[features]").admissible
    opened.step("click[< prev]")
    assert opened.state.options == chosen
    opened.step("click[< prev]")
    assert opened.state.place == "results"
    assert opened.state.options == ()


def test_a_query_that_names_a_page_misleads_the_previous_button(games: list[Game]) -> None:
    world = make_world("webshop")
    world.reset(games[0])
    first = next(c for c in world.step("search[search_results women]").admissible if c.startswith("click[b0"))
    world.step(first)
    assert "Page 0 (" in world.step("click[< prev]").text
    first = next(c for c in world.step("search[item_page women]").admissible if c.startswith("click[b0"))
    world.step(first)
    world.step("click[features]")
    assert world.step("click[< prev]").text.count("Page 1 (")


@pytest.mark.parametrize(
    "command", ["", "buy now", "click[search]", "Click[buy now]", "click[no such]", "search[]", "look"]
)
def test_what_means_nothing_shows_the_page_again(opened: WebShopWorld, command: str) -> None:
    before, key = opened.step("nothing"), opened.state_key()
    assert opened.step(command) == before
    assert opened.state_key() == key


def test_buying_ends_it_and_only_that(opened: WebShopWorld) -> None:
    seen = opened.step("click[Buy Now]")
    assert seen.done
    assert 0 <= seen.reward <= 1
    assert seen.admissible == ()
    assert f"(min 0.0, max 1.0) [SEP] {seen.reward} [SEP]" in seen.text


@settings(max_examples=25)
@given(st.integers(0, 39), st.integers(0, 2**32))
def test_keys_are_equal_exactly_for_equal_states(number: int, seed: int) -> None:
    """On random walks: a key stands for one state, a state has one key, the same commands lead to the same."""
    game, draws = generate_games(40, 3, "train")[number], random.Random(seed)
    known: dict[str, tuple] = {}
    for _ in range(3):
        world = make_world("webshop")
        seen = world.reset(game)
        for _ in range(8):
            command = draws.choice(seen.admissible).replace(OPEN, draws.choice(["red", "women", "lamp"]))
            copy = world.clone()
            before = world.state_key()
            seen = world.step(command)
            assert copy.state_key() == before
            assert copy.step(command) == seen
            assert copy.state_key() == world.state_key()
            told = (seen, world.state)
            assert known.setdefault(world.state_key(), told) == told
            if seen.done:
                break
    assert len({state for _, state in known.values()}) == len(known)


def test_keys_do_not_depend_on_the_process_and_cover_the_game(games: list[Game]) -> None:
    code = (
        "from agentprm_core.worlds import make_world, world_spec\n"
        "world = make_world('webshop'); world.reset(world_spec('webshop').generate(40, 3, 'train')[0])\n"
        "world.step('search[red shoes]'); print(world.state_key())"
    )
    theirs = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    world = make_world("webshop")
    world.reset(games[0])
    world.step("search[red shoes]")
    assert world.state_key() == theirs
    world.reset(games[1])
    world.step("search[red shoes]")
    assert world.state_key() != theirs


def test_admissible_commands_are_sorted_unique_and_accepted(games: list[Game]) -> None:
    world = make_world("webshop")
    seen = world.reset(games[0])
    for command in ("search[women]", "click[next >]"):
        seen = world.step(command)
        assert list(seen.admissible) == sorted(set(seen.admissible))
        for choice in seen.admissible:
            if OPEN not in choice:
                copy = world.clone()
                copy.step(choice)
                assert copy.state_key() != world.state_key(), choice


def test_a_goal_is_read() -> None:
    assert read_goal(
        "Find me slim fit shirts with long sleeve for gym with color: shade 1: red, and fit type: men, and price lower "
        "than 50.00 dollars"
    ) == Wish("slim fit shirts with long sleeve for gym", ("shade 1: red", "men"), 50.0)
    assert read_goal("Find me lamps with steel frame") == Wish("lamps with steel frame", (), float("inf"))


def test_the_shopper_reads_a_product_without_a_title() -> None:
    page = Pages(Catalogue("test", [replace(_LAMP, title=""), replace(_LAMP, asin="B0LAMP0002")])).results((0, 1), 1)
    seen = Observation(f"Instruction: [SEP] Find me lamps{page.rest}", page.admissible)
    assert Shopper("Find me lamps, and price lower than 30.00 dollars").act(seen) == "click[b0lamp0001]"


def test_the_shopper_buys_what_is_asked() -> None:
    spec, world = world_spec("webshop"), make_world("webshop")
    turns = spec.expert_turns
    episodes = [
        demonstrate(world, game, world_name="webshop", max_turns=turns, seed=0, knowledge=1.0)
        for game in generate_games(150, 0, "unseen")
    ]
    assert sum(episode.won for episode in episodes) / len(episodes) > 0.85
    assert all(turn.valid or turn.action.startswith("search[") for episode in episodes for turn in episode.turns)


def test_the_shopper_goes_on_after_mistakes() -> None:
    world = make_world("webshop")
    episodes = [
        demonstrate(world, game, world_name="webshop", max_turns=40, seed=n, knowledge=1.0, corrupt=0.2)
        for n, game in enumerate(generate_games(60, 1, "seen"))
    ]
    assert sum(episode.reward for episode in episodes) / len(episodes) > 0.5


def test_a_game_that_is_cut_or_of_a_missing_product_says_so(games: list[Game]) -> None:
    world, game = make_world("webshop"), games[0]
    with pytest.raises(UnsupportedGame, match=f"game {game.id}: its payload .*make the games anew"):
        world.reset(replace(game, payload=game.payload[:50]))
    code = read_task(game)[0].goal.asin
    with pytest.raises(
        UnsupportedGame, match=f"product B0NOTHERE0 is not in catalogue {CATALOGUES[0]}; make the games anew"
    ):
        world.reset(replace(game, payload=game.payload.replace(code, "B0NOTHERE0")))
