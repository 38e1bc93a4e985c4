"""WebShop's reward: fuzzy matches, pairs of options, kinds of products."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentprm_core.worlds.webshop.fuzzy import THRESHOLD, alike, token_set_ratio
from agentprm_core.worlds.webshop.goals import Goal
from agentprm_core.worlds.webshop.product import Product
from agentprm_core.worlds.webshop.reward import attribute_matches, judge, option_matches, title_score, type_share

_SHIRT = Product(
    asin="B000000001",
    title="Acme Cotton Shirt",
    description="Goes with everything.",
    bullets=("Machine wash cold.",),
    options={"color": ("dark blue", "red"), "size": ("small", "x-large")},
    prices=(10.0, 20.0),
    category="fashion",
    query="men's shirts",
    product_category="Clothing › Men › Shirts",
    attributes=("long sleeves", "slim fit"),
)


@pytest.mark.parametrize(
    ("one", "other", "ratio"),
    [
        ("long sleeve", "Long-Sleeve!", 100),
        ("machine wash", "wash by machine cold", 100),  # all words of one are in the other
        ("long sleeve", "short sleeve", 71),  # "sleeve" against "sleeve long": 2 * 6 / 17
        ("x-large", "('size', 'x-large')", 100),
        ("!!", "red", 0),
        ("", "", 0),
    ],
)
def test_token_set_ratio(one: str, other: str, ratio: int) -> None:
    assert token_set_ratio(one, other) == ratio


_NEAR = st.lists(st.sampled_from(["long", "longs", "sleeve", "sleeves", "sl", "x-large", "éa", "a" * 120]), max_size=4)


@settings(max_examples=300)
@given(_NEAR, _NEAR)
def test_texts_are_alike_where_the_ratio_is_above_the_threshold(one: list[str], other: list[str]) -> None:
    first, second = " ".join(one), " ".join(other)
    assert alike(first, second) == (token_set_ratio(first, second) > THRESHOLD)


def test_attributes_are_found_in_the_list_or_in_the_texts() -> None:
    assert attribute_matches(_SHIRT, ["long sleeve", "machine wash", "tummy control"]) == 2


@pytest.mark.parametrize(
    ("chosen", "wanted", "matches"),
    [
        (["dark blue"], [("color", "light blue")], 1),  # both shades are in a pair's text: the published flaw
        (["red"], [("color", "blue")], 0),
        (["x-large"], [("size", "x-large")], 1),
        (["z2-pink", "8"], ["pink", "8"], 2),
        ([], [("size", "small")], 0),
    ],
)
def test_options_match_as_pairs(chosen: list[str], wanted: list, matches: int) -> None:
    assert option_matches(chosen, wanted) == matches


@pytest.mark.parametrize(
    ("query", "category", "score", "share"),
    [
        (True, False, 0.3, 1.0),
        (False, False, 0.21, 1.0),
        (False, False, 0.2, 0.5),
        (True, True, 0.05, 0.1),
        (True, True, 0.0, 0.0),
    ],
)
def test_share_of_the_type(query: bool, category: bool, score: float, share: float) -> None:
    assert type_share(query, category, score) == share


def test_titles_share_nouns() -> None:
    assert title_score("Acme Cotton Shirt", "Acme Cotton Shirt") == 1
    assert title_score("Cotton Sock", "Cotton Shirt for Summer Shirt") == pytest.approx(1 / 4)
    assert title_score("Cotton Sock", "The Best") == 0.2


def test_a_purchase_is_worth_its_share_of_what_was_asked() -> None:
    goal = Goal("B000000001", "", ("slim fit", "tummy control"), {"size": "small"}, 20.0)
    parts = judge(_SHIRT, {"size": "small"}, 15.0, goal, _SHIRT)
    assert (parts.attribute_matches, parts.option_matches, parts.price_ok, parts.r_type) == (1, 1, True, 1.0)
    assert parts.reward == 3 / 4
    assert judge(_SHIRT, {}, 20.01, goal, _SHIRT).reward == 1 / 4
