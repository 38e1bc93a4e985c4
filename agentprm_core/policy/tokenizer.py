"""A word tokenizer for policies trained from scratch, where an entity and its number are one token.

``cabinet 12`` is one token, the world's fixed phrases (``you arrive at``) are one token each, articles, commas and full
stops are none. A turn is then about ten tokens instead of twenty-five, and a name is copied in one step instead of two:
with a number as a token of its own a small policy miscopies names and learns almost nothing (``docs/methods.md``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import WordLevel
from tokenizers.trainers import WordLevelTrainer
from transformers import PreTrainedTokenizerFast

from agentprm_core.policy.prompt import ACT, BOS, END, PAD, UNK

_PHRASES = (
    "you are in middle of room looking quickly around you you see",
    "your task is to:",
    "you arrive at",
    "you see nothing",
    "nothing happens",
    "you pick up",
    "you move",
    "you open",
    "you close",
    "you heat",
    "you cool",
    "you clean",
    "you turn on",
    "you are carrying:",
    "you are not carrying anything",
    "you are facing",
    "next to it",
    "there's nothing special about",
    "this is",
    "is open",
    "is closed",
    "in it",
    "you see",
    "go to",
)
"""Said again and again by ALFWorld, after articles and punctuation are gone; longest first where one starts another."""

_ENTITY = re.compile(r"([a-z]+) (\d+)")
_SPLIT = "|".join([*sorted(map(re.escape, _PHRASES), key=len, reverse=True), r"[a-z]+ \d+", r"[^\s]+"])


def train_tokenizer(texts: Iterable[str], context: int) -> PreTrainedTokenizerFast:
    """A word-level tokenizer of ``texts`` (observations and actions) for sequences of up to ``context`` tokens.

    Every number up to the highest seen for its kind of entity gets a token, whether it was seen or not. Words never
    seen become ``<unk>``.
    """
    texts = list(texts)
    tokenizer = Tokenizer(WordLevel(unk_token=UNK))
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.Lowercase(),
            normalizers.Replace(Regex(r"[,.]+(?=\s|$)"), ""),
            normalizers.Replace(Regex(r"\b(?:a|an|the|and) "), ""),
            normalizers.Replace(Regex(r"\s+"), " "),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(_SPLIT), "isolated"), pre_tokenizers.Split(Regex(r"^\s+$"), "removed")]
    )
    trainer = WordLevelTrainer(vocab_size=1_000_000, special_tokens=[PAD, UNK, BOS, ACT, END])
    tokenizer.train_from_iterator([*texts, *_all_numbers(texts)], trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        unk_token=UNK,
        bos_token=BOS,
        eos_token=END,
        additional_special_tokens=[ACT],
        model_max_length=context,
        clean_up_tokenization_spaces=False,
    )


def _all_numbers(texts: Iterable[str]) -> list[str]:
    highest: dict[str, int] = {}
    for text in texts:
        for kind, number in _ENTITY.findall(text.lower()):
            highest[kind] = max(highest.get(kind, 0), int(number))
    return [f"{kind} {n}" for kind in sorted(highest) for n in range(1, highest[kind] + 1)]
