"""DPO by TRL on plain rows: the check of :mod:`agentprm_core.improve.online_dpo`, and a path for what TRL brings along.

Pairs are drawn once from π_{i−1}, as many as the steps read, and judged by the PRM as there. Then every pair is two
rows, each with its whole history, and ``trl.DPOTrainer`` does the rest. Dearer in tokens, not online, and its
probabilities are over the whole vocabulary also where play draws from the admissible commands alone. With a LoRA policy
TRL freezes a copy of the adapter as the reference; with a full one it is given a copy of the model.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from agentprm_core.errors import DataError
from agentprm_core.improve.online_dpo import DpoSettings, judge, new_proposer
from agentprm_core.improve.pairs import Pair, PairCounts
from agentprm_core.policy.models import Checkpoint
from agentprm_core.training.settings import step_arguments
from agentprm_core.types import Episode

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_PORTION = 128
"""Episodes whose actions are drawn as one call."""


def train_dpo_trl(
    episodes: Sequence[Episode], policy: Checkpoint, prm: Checkpoint, settings: DpoSettings, scratch: Path
) -> tuple[PreTrainedModel, dict]:
    """Train ``policy.model`` in place. Returns it, and ``steps``, ``loss``, ``curve``, ``pairs``, ``tokens_trained``
    (as many as its steps' rows have on average), ``seconds``, and ``resumed_from``, which is 0: a killed run begins
    anew.

    Raises:
        DataError: no two actions that differ in score.
        ValueError: settings that TRL lacks (fresh pairs, soft preferences, imitation).
    """
    if settings.imitation:
        raise ValueError("TRL's DPO imitates nothing: set imitation to 0")
    if settings.preference != "winner" or settings.steps is None or settings.refresh_every < settings.steps:
        raise ValueError("TRL's DPO draws its pairs once: set preference: winner, and refresh_every to all the steps")
    counts = PairCounts()
    rows = _drawn_rows(episodes, policy, prm, settings, counts)
    if not rows:
        raise DataError(f"none of {counts.states} states has two actions whose scores differ: nothing to prefer")
    trainer = dpo_trainer(rows, policy, settings, scratch)
    start = time.perf_counter()
    trainer.train()
    steps, each = trainer.state.global_step, sum(map(_tokens, rows)) / len(rows)
    per_step = trainer.args.per_device_train_batch_size * trainer.args.gradient_accumulation_steps
    curve = [entry for entry in trainer.state.log_history if "loss" in entry]
    return policy.model, {
        "steps": steps,
        "loss": curve[-1]["loss"],
        "curve": curve,
        "pairs": counts.pairs,
        "tokens_trained": round(steps * per_step * each),
        "seconds": time.perf_counter() - start,
        "resumed_from": 0,
    }


def _drawn_rows(
    episodes: Sequence[Episode], policy: Checkpoint, prm: Checkpoint, settings: DpoSettings, counts: PairCounts
) -> list[dict]:
    """Rows of pairs at the states of episodes in a drawn order, until there is one for every place in the steps, or no
    episode is left: drawing costs about as much as training does."""
    proposer, order = new_proposer(policy, settings), np.random.default_rng(settings.seed).permutation(len(episodes))
    assert settings.steps is not None, "the update is so many steps, not epochs"
    rows: list[dict] = []
    for first in range(0, len(order), _PORTION):
        portion = order[first : first + _PORTION].tolist()
        visited = [episodes[i] for i in portion]
        drawn = proposer.propose(visited, settings.samples, [(settings.seed, i) for i in portion])
        rows += plain_rows(visited, judge(visited, drawn, prm, settings, counts), policy)
        if rows and len(rows) >= settings.steps * settings.accumulation * _rows_at_once(rows, settings):
            break
    return rows


def _rows_at_once(rows: Sequence[dict], settings: DpoSettings) -> int:
    """Of a batch: as many as ``batch_tokens`` hold on average."""
    return max(1, int(settings.batch_tokens / (sum(map(_tokens, rows)) / len(rows))))


def plain_rows(episodes: Sequence[Episode], pairs: Sequence[Sequence[Pair]], policy: Checkpoint) -> list[dict]:
    """A row a pair, as TRL's collator wants it: the history's tokens and those of either action."""
    rows = []
    for episode, of_episode in zip(episodes, pairs):
        rendered = policy.renderer.episode(episode.turns)
        for pair in of_episode:
            history = rendered.input_ids[: rendered.action_starts[pair.turn]]
            chosen, rejected = list(pair.chosen.tokens), list(pair.rejected.tokens)
            rows.append({"prompt_ids": history, "chosen_ids": chosen, "rejected_ids": rejected})
    return rows


def _tokens(row: dict) -> int:
    """Of a pair, each action with its whole history."""
    return 2 * len(row["prompt_ids"]) + len(row["chosen_ids"]) + len(row["rejected_ids"])


def dpo_trainer(rows: Sequence[dict], policy: Checkpoint, settings: DpoSettings, scratch: Path):
    """A ``trl.DPOTrainer`` over the rows, as many a batch as ``batch_tokens`` hold on average."""
    from datasets import Dataset
    from trl import DPOConfig, DPOTrainer  # pyright: ignore[reportPrivateImportUsage]: it imports them lazily

    assert settings.steps is not None, "the update is so many steps, not epochs"
    arguments = DPOConfig(
        output_dir=str(scratch),
        beta=settings.beta,
        max_steps=settings.steps,
        per_device_train_batch_size=_rows_at_once(rows, settings),
        **step_arguments(settings),
        max_length=None,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        seed=settings.seed,
        gradient_checkpointing=False,  # TRL's default is on
        use_cpu=policy.model.device.type == "cpu",
    )
    tuned = hasattr(policy.model, "peft_config")
    if tuned:
        policy.model.set_adapter("default")  # one that was loaded to play is frozen
    if settings.gradient_checkpointing:
        policy.model.gradient_checkpointing_enable({"use_reentrant": False})

    class OnTokens(DPOTrainer):
        def _prepare_dataset(self, dataset, processing_class, args, dataset_name):
            return dataset  # tokens already: a text would be split otherwise than in its history

    return OnTokens(
        policy.model,
        ref_model=None if tuned else copy.deepcopy(policy.model),
        args=arguments,
        train_dataset=Dataset.from_list(list(rows)),
        processing_class=policy.tokenizer,
    )
