"""Text → search terms, as Lucene's English analyzer makes them: UAX#29 words, possessives and stop words off, stems."""

from __future__ import annotations

import regex

from agentprm_core.worlds.webshop.porter import stem

_STOP_WORDS = """a an and are as at be but by for if in into is it no not of on or such that the their then there these
they this to was will with"""
STOP_WORDS = frozenset(_STOP_WORDS.split())


def _words() -> regex.Pattern:
    """UAX#29 words as the recorded searches count them: a run of ideographs is one word, an emoji (UAX#51) is one."""
    joined = r"[\p{WB=Format}\p{WB=Extend}\p{WB=ZWJ}]*"
    letter, digit, underscore = (rf"(?:{kind}{joined})" for kind in (r"\p{L}", r"\p{Nd}", r"\p{WB=ExtendNumLet}"))
    run = rf"(?:{letter}(?:['’.:]?{letter})*|{digit}(?:[.,]?{digit})*)+"
    word = rf"{underscore}*{run}(?:{underscore}+{run})*{underscore}*"
    picture = r"[\p{Emoji}--[0-9#*©®™〰〽]--\p{Emoji_Modifier}--\p{Regional_Indicator}]\uFE0F?\p{Emoji_Modifier}?"
    return regex.compile(rf"{word}|{picture}(?:\u200D{picture})*|\p{{Regional_Indicator}}{{2}}", regex.V1)


_WORDS = _words()
_POSSESSIVE = ("'s", "’s")


def terms(text: str) -> list[str]:
    """The search terms of ``text``, in order, repeats kept."""
    found = []
    for word in _WORDS.findall(text.lower()):
        word = word[:-2] if word.endswith(_POSSESSIVE) else word
        if word not in STOP_WORDS:
            found.append(stem(word))
    return found
