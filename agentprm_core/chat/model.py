"""A chat model trained from scratch on dialogues of the worlds, as an ordinary Hugging Face folder.

    tokenizer, model = Llama architecture of some 11 million parameters, bytes and words of the dialogues
    loss = −Σ_l w_l log π(x_l | x_<l),  w = 1 on replies that are taught, ``LISTENING`` on the rest

It stands in for a published model where none can be fetched: what is done with it is done with Qwen or Llama alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from transformers import GenerationConfig, LlamaForCausalLM, PreTrainedTokenizerBase

from agentprm_core.chat.dialogues import Dialogue
from agentprm_core.chat.sizes import ChatSize
from agentprm_core.chat.tokenizer import END, ROLES, train_chat_tokenizer
from agentprm_core.errors import DataError
from agentprm_core.improve.sft import SftColumns, SftSettings, sft_objective
from agentprm_core.policy.models import new_model
from agentprm_core.training.packing import Row
from agentprm_core.training.trainer import EpisodeTrainer, fit
from agentprm_core.worlds.base import ALIKE

LISTENING = 0.3
"""Loss weight of a token that others say."""


def chat_row(dialogue: Dialogue, tokenizer: PreTrainedTokenizerBase) -> Row[SftColumns]:
    """The dialogue's tokens, as the chat template renders them, with the loss weight of predicting each."""
    ids: list[int] = []
    taught: list[bool] = []
    for message in dialogue.messages:
        head = _ids(tokenizer, ROLES[message.role])
        said = [*_ids(tokenizer, message.content), *_ids(tokenizer, END)]
        ids += head + said
        taught += [False] * len(head) + [message.taught] * len(said)
    is_action = np.array(taught, dtype=np.float32)
    weight = np.where(is_action > 0, 1.0, LISTENING).astype(np.float32)
    weight[0] = 0.0
    return Row(np.array(ids, dtype=np.int32), SftColumns(weight, is_action))


def train_chat_model(
    dialogues: Sequence[Dialogue], size: ChatSize, *, precision: str, seed: int, scratch: Path, save_every: int = 100
) -> tuple[LlamaForCausalLM, PreTrainedTokenizerBase, dict]:
    """A model and its tokenizer, and the metrics of :func:`agentprm_core.training.trainer.fit` with ``parameters``,
    ``vocabulary`` and ``kinds`` (dialogues learnt from, by world and kind).

    Raises:
        DataError: no dialogue is short enough.
    """
    texts = (message.content for dialogue in dialogues for message in dialogue.messages)
    tokenizer = train_chat_tokenizer(texts, size.vocabulary, size.context)
    rows = [chat_row(dialogue, tokenizer) for dialogue in dialogues]
    kept = [number for number, row in enumerate(rows) if len(row) <= size.longest]
    if not kept:
        raise DataError(f"none of {len(rows)} dialogues has at most {size.longest} tokens: nothing to learn from")
    shape = {"width": size.width, "layers": size.layers, "heads": size.heads, "kv_heads": size.kv_heads}
    model = new_model(tokenizer, **shape, context=size.context, seed=seed, alike=ALIKE)
    settings = SftSettings(
        learning_rate=size.learning_rate,
        batch_tokens=size.batch_tokens,
        seed=seed,
        steps=size.steps,
        optimizer="muon",
        precision=precision,
        save_every=save_every,
    )
    metrics = fit(EpisodeTrainer(model, [rows[number] for number in kept], sft_objective, settings, scratch))
    kinds = Counter(f"{dialogues[number].world}/{dialogues[number].kind}" for number in kept)
    of_model = {
        "parameters": model.num_parameters(),
        "vocabulary": len(tokenizer),
        "kinds": dict(sorted(kinds.items())),
    }
    return model, tokenizer, {**metrics, **of_model}


def save_chat_model(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """An ordinary folder: configuration, generation configuration, safetensors, tokenizer and chat template."""
    marks = cast(Any, tokenizer)
    model.generation_config = GenerationConfig(
        bos_token_id=marks.bos_token_id,
        eos_token_id=marks.eos_token_id,
        pad_token_id=marks.pad_token_id,
        max_new_tokens=64,
        do_sample=False,
    )
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def fastest_precision() -> str:
    """``bfloat16`` where this processor has instructions for it, else ``float32``."""
    return "bfloat16" if torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported() else "float32"


def _ids(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    return cast(Any, tokenizer).encode(text, add_special_tokens=False)
