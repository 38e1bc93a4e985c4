"""Porter's stemmer (Porter 1980) with the two departures of its author's later code, as Lucene has it."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

_STEP_2 = {
    "ational": "ate", "tional": "tion", "enci": "ence", "anci": "ance", "izer": "ize", "bli": "ble", "alli": "al",
    "entli": "ent", "eli": "e", "ousli": "ous", "ization": "ize", "ation": "ate", "ator": "ate", "alism": "al",
    "iveness": "ive", "fulness": "ful", "ousness": "ous", "aliti": "al", "iviti": "ive", "biliti": "ble", "logi": "log",
}  # fmt: skip
_STEP_3 = {"icate": "ic", "ative": "", "alize": "al", "iciti": "ic", "ical": "ic", "ful": "", "ness": ""}
_STEP_4 = (
    "ement", "ance", "ence", "able", "ible", "ment", "ant", "ent", "ism", "ate", "iti", "ous", "ive", "ize", "ion",
    "al", "er", "ic", "ou",
)  # fmt: skip


@lru_cache(maxsize=100_000)
def stem(word: str) -> str:
    """The stem of a lower-case ``word``; words of one or two letters are their own."""
    if len(word) <= 2:
        return word
    word = _plurals(word)
    word = _past(word)
    if word.endswith("y") and _has_vowel(word[:-1]):
        word = word[:-1] + "i"
    word = _replaced(word, _STEP_2)
    word = _replaced(word, _STEP_3)
    word = _step_4(word)
    return _step_5(word)


def _plurals(word: str) -> str:
    if word.endswith("sses") or word.endswith("ies"):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _past(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for ending in ("ed", "ing"):
        if word.endswith(ending) and _has_vowel(word[: -len(ending)]):
            word = word[: -len(ending)]
            if word.endswith(("at", "bl", "iz")):
                return word + "e"
            if _double_consonant(word):
                return word if word[-1] in "lsz" else word[:-1]
            return word + "e" if _measure(word) == 1 and _short(word) else word
    return word


def _replaced(word: str, endings: dict[str, str]) -> str:
    for ending in sorted(endings, key=len, reverse=True):
        if word.endswith(ending):
            stem_ = word[: -len(ending)]
            return stem_ + endings[ending] if _measure(stem_) > 0 else word
    return word


def _step_4(word: str) -> str:
    for ending in _STEP_4:
        if word.endswith(ending):
            stem_ = word[: -len(ending)]
            if ending == "ion" and not stem_.endswith(("s", "t")):
                return word
            return stem_ if _measure(stem_) > 1 else word
    return word


def _step_5(word: str) -> str:
    if word.endswith("e"):
        measure = _measure(word[:-1])
        if measure > 1 or (measure == 1 and not _short(word[:-1])):
            word = word[:-1]
    return word[:-1] if word.endswith("ll") and _measure(word) > 1 else word


def _consonant(word: str, i: int) -> bool:
    if word[i] in "aeiou":
        return False
    return word[i] != "y" or i == 0 or not _consonant(word, i - 1)


def _measure(word: str) -> int:
    """How often a vowel is followed by a consonant: m of [C](VC)^m[V]."""
    kinds = [_consonant(word, i) for i in range(len(word))]
    return sum(not before and after for before, after in pairwise(kinds))


def _has_vowel(word: str) -> bool:
    return any(not _consonant(word, i) for i in range(len(word)))


def _double_consonant(word: str) -> bool:
    return len(word) >= 2 and word[-1] == word[-2] and _consonant(word, len(word) - 1)


def _short(word: str) -> bool:
    """Ends consonant, vowel, consonant, and the last is not w, x or y."""
    n = len(word)
    if n < 3 or word[-1] in "wxy":
        return False
    return _consonant(word, n - 1) and not _consonant(word, n - 2) and _consonant(word, n - 3)
