"""Do two texts say the same? ``token_set_ratio`` of thefuzz 0.19 on difflib, above the threshold of WebShop."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from functools import lru_cache

THRESHOLD = 85
_NO_WORD = re.compile(r"\W")


@lru_cache(maxsize=500_000)
def alike(one: str, other: str) -> bool:
    """Whether ``token_set_ratio(one, other)`` is above :data:`THRESHOLD`."""
    return any(_may_be_above(*pair) and _ratio(*pair) > THRESHOLD for pair in _pairs(one, other))


def token_set_ratio(one: str, other: str) -> int:
    """0 to 100: the best ratio between the words that both share and those with the rest of either.

    Lower case, ASCII alone, each word once, words sorted. 0 where a text has no word.
    """
    return max((_ratio(*pair) for pair in _pairs(one, other)), default=0)


def _pairs(one: str, other: str) -> tuple[tuple[str, str], ...]:
    """The texts whose ratios :func:`token_set_ratio` takes; none where one has no word."""
    first, second = _words(one), _words(other)
    if not first or not second:
        return ()
    shared = " ".join(sorted(first & second))
    with_first = f"{shared} {' '.join(sorted(first - second))}".strip()
    with_second = f"{shared} {' '.join(sorted(second - first))}".strip()
    return (shared, with_first), (shared, with_second), (with_first, with_second)


@lru_cache(maxsize=100_000)
def _words(text: str) -> frozenset[str]:
    return frozenset(_NO_WORD.sub(" ", text.encode("ascii", "ignore").decode()).lower().split())


def _may_be_above(one: str, other: str) -> bool:
    """False where the letters that both have are too few for a ratio above :data:`THRESHOLD`, whatever their order:
    most pairs, in a sixth of the time."""
    letters = len(one) + len(other)
    if 200 * min(len(one), len(other)) <= THRESHOLD * letters:
        return False
    both = sum(min(one.count(letter), other.count(letter)) for letter in set(one))
    return 200 * both > THRESHOLD * letters


def _ratio(one: str, other: str) -> int:
    if one == other:
        return 100
    return round(100 * SequenceMatcher(None, one, other).ratio()) if one and other else 0
