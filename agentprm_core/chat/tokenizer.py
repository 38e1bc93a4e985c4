"""A byte-level BPE tokenizer with a chat template, learnt from dialogues.

As a published chat model's: any text can be said, and the marks of messages are special tokens. A word takes the blank
or line break before it with it, so a command in a list (``\\ngo to drawer 3``) and in a reply (``ACTION:\\ngo to
drawer 3``) are the same tokens. Digits go one by one. A message is bounded by special tokens on both sides, so a server
that reads the conversation's text anew finds the same tokens as those that were sampled.
"""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer
from transformers import PreTrainedTokenizerFast

PAD, START, END = "<|pad|>", "<|text|>", "<|end|>"
ROLES = {role: f"<|{role}|>" for role in ("system", "user", "assistant")}
TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
_WORDS = r"[ \n]?\p{L}+|[ \n]?\d|[ \n]?[^\s\p{L}\d]+|\s+"


def train_chat_tokenizer(texts: Iterable[str], vocabulary: int, context: int) -> PreTrainedTokenizerFast:
    """A tokenizer of at most ``vocabulary`` tokens, for conversations of up to ``context`` tokens."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    marks = [PAD, START, END, *ROLES.values()]
    trainer = BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=marks,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        bos_token=START,
        eos_token=END,
        additional_special_tokens=list(ROLES.values()),
        model_max_length=context,
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = TEMPLATE
    return fast
