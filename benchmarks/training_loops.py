"""What a training step costs beside the model: our loop, transformers' Trainer by its public hooks, and a bare loop.

Used by :mod:`benchmarks.training`.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import SequentialSampler
from transformers import PreTrainedModel, PrinterCallback, Trainer, TrainingArguments

from agentprm_core.improve.sft import SftColumns, SftSettings, sft_objective
from agentprm_core.prm.losses import prm_objective, soft_bce
from agentprm_core.prm.train import PrmSettings
from agentprm_core.training.attention import packed_attention
from agentprm_core.training.packing import BatchPlan, Row, pack
from agentprm_core.training.trainer import EpisodeTrainer, fit

OBJECTIVE = prm_objective(soft_bce)
RATE = 1e-4


def our_loop(model: PreTrainedModel, rows: Sequence[Row], batch_tokens: int, precision: str) -> float:
    """Seconds of one pass over ``rows`` through the loop that the pipeline uses."""
    settings = PrmSettings(RATE, batch_tokens, 0, epochs=1, precision=precision)
    with tempfile.TemporaryDirectory() as scratch:
        return fit(EpisodeTrainer(model, rows, OBJECTIVE, settings, Path(scratch)))["seconds"]


def bare_loop(model: PreTrainedModel, rows: Sequence[Row], batch_tokens: int, precision: str) -> float:
    """Seconds of the same pass in a loop of ten lines."""
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), RATE, fused=True)
    start = time.perf_counter()
    with packed_attention(model):
        for numbers in _plan(rows, batch_tokens):
            batch = pack([rows[i] for i in numbers]).to(model.device)
            with torch.autocast(model.device.type, torch.bfloat16, enabled=precision == "bfloat16"):
                loss = OBJECTIVE(model, batch).total / batch.columns.loss_weight.sum()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    _finish(model.device)
    return time.perf_counter() - start


def transformers_loop(model: PreTrainedModel, rows: Sequence[Row], batch_tokens: int, precision: str) -> float:
    """Seconds of the same pass by ``transformers.Trainer``, without states and logs."""
    plan = _plan(rows, batch_tokens)
    with tempfile.TemporaryDirectory() as scratch:
        arguments = TrainingArguments(
            scratch,
            num_train_epochs=1,
            per_device_train_batch_size=1,
            learning_rate=RATE,
            lr_scheduler_type="cosine",
            bf16=precision == "bfloat16",
            use_cpu=model.device.type == "cpu",
            disable_tqdm=True,
            report_to="none",
            save_strategy="no",
            logging_strategy="no",
            remove_unused_columns=False,
            dataloader_pin_memory=False,
        )

        def collate(planned: list[list[int]]) -> dict:
            return {"batch": pack([rows[i] for i in planned[0]])}

        trainer = _ByHooks(model, arguments, train_dataset=plan, data_collator=collate)
        trainer.remove_callback(PrinterCallback)
        start = time.perf_counter()
        with packed_attention(model):
            trainer.train()
        _finish(model.device)
        return time.perf_counter() - start


class _ByHooks(Trainer):
    def _get_train_sampler(self, train_dataset=None) -> SequentialSampler:
        return SequentialSampler(self.train_dataset)

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None) -> torch.Tensor:
        batch = inputs["batch"].to(self.args.device)
        return OBJECTIVE(model, batch).total / batch.columns.loss_weight.sum()

    def floating_point_ops(self, inputs) -> int:
        return 0


class _Clock:
    """Seconds of each step and of the optimizer's part of it."""

    def __init__(self, trainer: EpisodeTrainer) -> None:
        self.device, self.steps, self.optimizer = trainer.processes.device, [], []
        self._begin, step = 0.0, trainer.optimizer.step

        def timed() -> None:
            _finish(self.device)
            begin = time.perf_counter()
            step()
            _finish(self.device)
            self.optimizer.append(time.perf_counter() - begin)

        trainer.optimizer.step = timed  # type: ignore[method-assign]

    def on_begin(self, trainer: EpisodeTrainer) -> None:
        self._begin = time.perf_counter()

    def on_step(self, trainer: EpisodeTrainer) -> bool:
        _finish(self.device)
        now = time.perf_counter()
        self.steps.append(now - self._begin)
        self._begin = now
        return False

    def on_end(self, trainer: EpisodeTrainer) -> None:
        pass


def sft_steps(
    model_of: Callable[[], PreTrainedModel],
    rows: Sequence[Row],
    batch_tokens: int,
    precision: str,
    steps: int,
    optimizer: str = "muon",
    passes: int = 1,
    compiled: bool = False,
) -> dict:
    """Steps of fine-tuning on episodes, all of whose tokens are learnt, and the optimizer's share of them."""
    tuned = [Row(row.input_ids, _all_learnt(len(row))) for row in rows]
    how = {"optimizer": optimizer, "precision": precision, "compiled": compiled}
    settings = SftSettings(RATE, batch_tokens // passes, 0, steps=steps, accumulation=passes, **how)
    with tempfile.TemporaryDirectory() as scratch:
        trainer = EpisodeTrainer(model_of(), tuned, sft_objective, settings, Path(scratch))
        clock = _Clock(trainer)
        trainer.callbacks.append(clock)
        fit(trainer)
    step_S, optimizer_S = np.array(clock.steps)[2:], np.array(clock.optimizer)[2:]  # the first two warm up
    return {
        "optimizer_share": float(np.median(optimizer_S / step_S)),
        "optimizer_ms": 1e3 * float(np.median(optimizer_S)),
        "sft_steps_per_s": 1 / float(np.median(step_S)),
        "sft_steps": steps,
    }


def _all_learnt(tokens: int) -> SftColumns:
    weight = np.ones(tokens, np.float32)
    weight[0] = 0  # cannot be predicted
    return SftColumns(weight, np.zeros(tokens, np.float32))


def _plan(rows: Sequence[Row], batch_tokens: int) -> BatchPlan:
    return BatchPlan([len(row) for row in rows], batch_tokens, 0, epochs=1)


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()
