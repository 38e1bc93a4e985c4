"""A tokenizer like a published chat model's, without its weights, and a small policy that reads it."""

from __future__ import annotations

from string import ascii_letters

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from agentprm_core.policy.models import Checkpoint, new_model
from agentprm_core.policy.prompt import make_renderer
from tests.model import text_world

CHATML = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"


def byte_tokenizer(template: str) -> PreTrainedTokenizerFast:
    """Bytes, ChatML's special tokens and this chat template."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|pad|>")
    fast.add_special_tokens({"additional_special_tokens": ["<|im_start|>"]})
    fast.chat_template = template
    return fast


def letter_policy() -> Checkpoint:
    """A chat policy of a few thousand parameters over bytes: what it writes are letters, by what it read."""
    fast = byte_tokenizer(CHATML)
    model = text_world.quiet(new_model(fast, width=32, layers=2, heads=2, kv_heads=1, context=8192, seed=3))
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(20 if weight.ndim > 1 else 1)
        head_VD = torch.zeros_like(model.lm_head.weight)
        letters = fast.convert_tokens_to_ids(list(ascii_letters))
        head_VD[letters] = torch.randn(len(letters), 32)
    model.lm_head.weight = torch.nn.Parameter(head_VD)
    return Checkpoint(model.eval(), fast, make_renderer(fast), "")
