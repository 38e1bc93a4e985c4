"""WebShop's search: stems, words, document lengths, and BM25 against the formula done slowly."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentprm_core.worlds.webshop.analysis import terms
from agentprm_core.worlds.webshop.porter import stem
from agentprm_core.worlds.webshop.search import K1, LIMIT, B, Index, one_byte


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        *[("caresses", "caress"), ("ponies", "poni"), ("cats", "cat"), ("agreed", "agre"), ("plastered", "plaster")],
        *[("motoring", "motor"), ("sing", "sing"), ("hopping", "hop"), ("falling", "fall"), ("filing", "file")],
        *[("happy", "happi"), ("sky", "sky"), ("relational", "relat"), ("vietnamization", "vietnam")],
        *[("triplicate", "triplic"), ("hopefulness", "hope"), ("adoption", "adopt"), ("controll", "control")],
        *[("rate", "rate"), ("probate", "probat"), ("as", "as"), ("possibly", "possibl"), ("apology", "apolog")],
    ],
)
def test_stems_are_porters(word: str, expected: str) -> None:
    assert stem(word) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Women's T-Shirts, and the size: X-Large", ["women", "t", "shirt", "size", "x", "larg"]),
        ("woman’s 3.5mm 1,000 v5.0", ["woman", "3.5mm", "1,000", "v5.0"]),
        ("size:large a.b 6'2 4/5", ["size:larg", "a.b", "6", "2", "4", "5"]),
        ("🌺🌺 ✔ ☛ snake_case 锅巴", ["🌺", "🌺", "✔", "snake_cas", "锅巴"]),
        ("of the and", []),
    ],
)
def test_words_are_split_as_the_recorded_searches_need(text: str, expected: list[str]) -> None:
    assert terms(text) == expected


@settings(max_examples=300)
@given(st.text("ab1_.,:' -☛", max_size=20))
def test_ascii_is_split_as_other_text_is(text: str) -> None:
    plain = text.replace("☛", " ")
    assert terms(plain) == terms(f"{plain} ☛")  # a symbol is no word, and makes the text another one than ASCII


@pytest.mark.parametrize(
    ("length", "kept"), [(0, 0), (39, 39), (40, 40), (41, 40), (42, 42), (61, 60), (127, 120), (128, 128), (343, 312)]
)
def test_a_length_keeps_four_bits_above_forty(length: int, kept: int) -> None:
    assert one_byte(length) == kept


_TEXTS = st.lists(st.lists(st.sampled_from(["red", "blue", "shoe", "sock", "large", "lamp"]), min_size=1), min_size=1)


@settings(max_examples=60)
@given(_TEXTS, st.lists(st.sampled_from(["red", "blue", "shoe", "sock", "hat"]), min_size=1))
def test_scores_are_the_formula(documents: list[list[str]], query: list[str]) -> None:
    codes = [f"B{n:02}" for n in reversed(range(len(documents)))]
    lengths, average = [len(document) for document in documents], sum(map(len, documents)) / len(documents)

    def score(number: int) -> float:
        total = 0.0
        for term, times in Counter(terms(" ".join(query))).items():
            having = sum(term in terms(" ".join(document)) for document in documents)
            tf = terms(" ".join(documents[number])).count(term)
            idf = math.log(1 + (len(documents) - having + 0.5) / (having + 0.5))
            total += times * idf * tf / (tf + K1 * (1 - B + B * one_byte(lengths[number]) / average))
        return total

    found = Index([" ".join(document) for document in documents], codes).search(" ".join(query))
    hits = [n for n in range(len(documents)) if score(n) > 0]
    assert len(found) == min(len(hits), LIMIT)
    assert [score(n) for n in found] == pytest.approx(sorted(map(score, hits), reverse=True)[:LIMIT])


def test_equal_scores_go_by_code() -> None:
    assert Index(["red shoe", "red shoe", "red shoe"], ["B2", "B3", "B1"]).search("shoes") == (2, 0, 1)


def test_a_query_of_stop_words_finds_nothing() -> None:
    assert Index(["the red shoe"], ["B1"]).search("of the") == ()
