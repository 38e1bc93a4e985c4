"""A word tokenizer for policies trained from scratch, where an entity and its number are one token.

``cabinet 12`` is one token, the world's fixed phrases (``you arrive at``) are one token each, articles, commas and full
stops are none. A turn is then about ten tokens instead of twenty-five, and a name is copied in one step instead of two:
with a number as a token of its own a small policy miscopies names and learns almost nothing (``docs/how-it-works.md``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import WordLevel
from tokenizers.trainers import WordLevelTrainer

from agentprm_core.policy.prompt import ACT, BOS, END, PAD, UNK

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

ENTITY = r"[a-z]+ \d+"
"""A name and its number: what :attr:`agentprm_core.worlds.base.WorldSpec.entity` is where a world does not say."""
_COUNTED = 1000
"""Numbers above are no counts of things but prices and codes: they get a token only where they were seen."""
_NUMBERED = re.compile(r"(.*?)(\d+)", re.DOTALL)


def train_tokenizer(
    texts: Iterable[str],
    context: int,
    phrases: Sequence[str] = (),
    entity: str = ENTITY,
    rewritten: Mapping[str, str] | None = None,
) -> PreTrainedTokenizerFast:
    """A word-level tokenizer of ``texts`` (observations and actions) for sequences of up to ``context`` tokens.

    ``phrases`` (lower case, without articles and full stops: :class:`agentprm_core.worlds.base.WorldSpec`) become one
    token each; where one starts another the longer counts. One without a letter or digit (``]``) also ends a word.

    ``entity``: a regular expression of what else is one token (``WorldSpec.entity``). Every number up to the highest
    seen for its kind of entity gets a token, whether it was seen or not; of numbers above 1,000 only those seen.
    Words never seen become ``<unk>``.

    ``rewritten``: a regular expression of lower-case text → what is read in its place, before articles and commas are
    left out (``WorldSpec.rewritten``).
    """
    from transformers import PreTrainedTokenizerFast

    texts = list(texts)
    marks = [re.escape(phrase) for phrase in phrases if not any(map(str.isalnum, phrase))]
    word = rf"(?:(?!{'|'.join(marks)})[^\s])+" if marks else r"[^\s]+"
    split = "|".join([*sorted(map(re.escape, phrases), key=len, reverse=True), entity, word])
    tokenizer = Tokenizer(WordLevel(unk_token=UNK))
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.Lowercase(),
            *(normalizers.Replace(Regex(told), read) for told, read in (rewritten or {}).items()),
            normalizers.Replace(Regex(r"[,.]+(?=\s|$)"), ""),
            normalizers.Replace(Regex(r"\b(?:a|an|the|and) "), ""),
            normalizers.Replace(Regex(r"\s+"), " "),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(split), "isolated"), pre_tokenizers.Split(Regex(r"^\s+$"), "removed")]
    )
    trainer = WordLevelTrainer(vocab_size=1_000_000, special_tokens=[PAD, UNK, BOS, ACT, END])
    tokenizer.train_from_iterator([*texts, *_all_numbers(texts, entity)], trainer)
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


def _all_numbers(texts: Iterable[str], entity: str) -> list[str]:
    """All numbers of each kind of entity: ``mug 1`` … ``mug 3``, or ``1`` … ``12`` where a number is one by itself."""
    highest: dict[str, int] = {}
    for text in texts:
        for found in re.findall(entity, text.lower()):
            if (numbered := _NUMBERED.fullmatch(found)) and int(numbered[2]) <= _COUNTED:
                highest[numbered[1]] = max(highest.get(numbered[1], 0), int(numbered[2]))
    return [f"{kind}{n}" for kind in sorted(highest) for n in range(1, highest[kind] + 1)]
