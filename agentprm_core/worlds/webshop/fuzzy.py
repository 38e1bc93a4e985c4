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
    return token_set_ratio(one, other) > THRESHOLD


def token_set_ratio(one: str, other: str) -> int:
    """0 to 100: the best ratio between the words that both share and those with the rest of either.

    Lower case, ASCII alone, each word once, words sorted. 0 where a text has no word.
    """
    first, second = _words(one), _words(other)
    if not first or not second:
        return 0
    shared = " ".join(sorted(first & second))
    with_first = f"{shared} {' '.join(sorted(first - second))}".strip()
    with_second = f"{shared} {' '.join(sorted(second - first))}".strip()
    return max(_ratio(shared, with_first), _ratio(shared, with_second), _ratio(with_first, with_second))


def _words(text: str) -> set[str]:
    return set(_NO_WORD.sub(" ", text.encode("ascii", "ignore").decode()).lower().split())


def _ratio(one: str, other: str) -> int:
    if one == other:
        return 100
    return round(100 * SequenceMatcher(None, one, other).ratio()) if one and other else 0
