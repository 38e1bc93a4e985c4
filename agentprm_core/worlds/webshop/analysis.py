"""Text → search terms, as Lucene's English analyzer makes them: UAX#29 words, possessives and stop words off, stems."""

from __future__ import annotations

import re

import regex

from agentprm_core.worlds.webshop.porter import stem

_STOP_WORDS = """a an and are as at be but by for if in into is it no not of on or such that the their then there these
they this to was will with"""
STOP_WORDS = frozenset(_STOP_WORDS.split())


def _word(letter: str, digit: str, underscore: str) -> str:
    """The pattern of a UAX#29 word, of the patterns of one letter, digit and underscore."""
    run = rf"(?:{letter}(?:['’.:]?{letter})*|{digit}(?:[.,]?{digit})*)+"
    return rf"{underscore}*{run}(?:{underscore}+{run})*{underscore}*"


def _words() -> regex.Pattern:
    """UAX#29 words as the recorded searches count them: a run of ideographs is one word, an emoji (UAX#51) is one."""
    joined = r"[\p{WB=Format}\p{WB=Extend}\p{WB=ZWJ}]*"
    word = _word(*(rf"(?:{kind}{joined})" for kind in (r"\p{L}", r"\p{Nd}", r"\p{WB=ExtendNumLet}")))
    picture = r"[\p{Emoji}--[0-9#*©®™〰〽]--\p{Emoji_Modifier}--\p{Regional_Indicator}]\uFE0F?\p{Emoji_Modifier}?"
    return regex.compile(rf"{word}|{picture}(?:\u200D{picture})*|\p{{Regional_Indicator}}{{2}}", regex.V1)


_WORDS = _words()
_ASCII_WORDS = re.compile(_word("[a-z]", "[0-9]", "_"))
"""The same of ASCII in lower case, in a third of the time."""
_POSSESSIVE = ("'s", "’s")


def terms(text: str) -> list[str]:
    """The search terms of ``text``, in order, repeats kept."""
    found = []
    text = text.lower()
    for word in (_ASCII_WORDS if text.isascii() else _WORDS).findall(text):
        word = word[:-2] if word.endswith(_POSSESSIVE) else word
        if word not in STOP_WORDS:
            found.append(stem(word))
    return found
