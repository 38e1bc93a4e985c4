"""The one training loop: ``transformers.Trainer`` over planned batches of whole episodes.

Departs from the Trainer's habits in four ways:
1. The data set is a plan of batches (:class:`agentprm_core.training.packing.BatchPlan`), so order, size and number of
   steps follow from the seed, and a killed run continues with the batch that is due.
2. The objective returns a *sum* of losses and its weight; the step's loss is their ratio over all processes and
   accumulated batches, so neither changes the gradient.
3. A loss that is not finite stops the run.
4. Scratch space belongs to one run: a digest of settings, data and first weights is kept beside the checkpoints, and
   another run's are not resumed from.

Everything else (DDP, bf16, accumulation, gradient checkpointing, LoRA) is the Trainer's own. A model that is sharded
(:mod:`agentprm_core.training.sharding`) is not wrapped in DDP, and its states are written in shards.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch.utils.data import SequentialSampler
from transformers import PreTrainedModel, PrinterCallback, Trainer, TrainingArguments

from agentprm_core.datasets import atomic_write
from agentprm_core.training.attention import packed_attention
from agentprm_core.training.muon import MuonWithAdamW
from agentprm_core.training.naming import described, restored
from agentprm_core.training.packing import BatchPlan, Row, pack
from agentprm_core.training.sharding import is_sharded, load_shards, save_shards, whole_tensor

SCHEDULES = ("cosine", "linear", "constant")
PRECISIONS = ("float32", "bfloat16")
OPTIMIZERS = ("adamw", "muon")
SHARDINGS = ("none", "fsdp2")
_RUN = "run.json"


@dataclass(frozen=True)
class TrainSettings:
    """How long and how fast to learn. Every trainer's settings extend these."""

    learning_rate: float
    batch_tokens: int
    """Tokens of one forward pass of one process."""
    seed: int
    epochs: float | None = None
    steps: int | None = None
    """Optimizer steps. Exactly one of ``epochs`` and ``steps`` is given."""
    schedule: str = "cosine"
    warmup: float = 0.05
    """Share of the steps over which the learning rate rises from 0."""
    weight_decay: float = 0.0
    optimizer: str = "adamw"
    """``muon``: :class:`agentprm_core.training.muon.MuonWithAdamW`, for models trained from scratch."""
    max_grad_norm: float = 1.0
    accumulation: int = 1
    precision: str = "float32"
    gradient_checkpointing: bool = False
    save_every: int = 0
    """Steps between states that a killed run resumes from; 0 keeps none."""
    processes: int = 1
    """That share the batches of a step, started by :func:`agentprm_core.training.launch.fit`. 1 also for a script that
    runs under a launcher itself: there each process accumulates ``accumulation`` batches."""
    sharding: str = "none"
    """``fsdp2``: the processes share parameters, gradients and optimizer state, too. For a script that runs under a
    launcher itself: :func:`agentprm_core.training.sharding.shard` on the model it hands over."""

    def __post_init__(self) -> None:
        if (self.epochs is None) == (self.steps is None):
            raise ValueError(f"give epochs or steps, one of them: epochs={self.epochs}, steps={self.steps}")
        if self.schedule not in SCHEDULES:
            raise ValueError(f"schedule: {self.schedule!r} is not one of {', '.join(SCHEDULES)}")
        if self.optimizer not in OPTIMIZERS:
            raise ValueError(f"optimizer: {self.optimizer!r} is not one of {', '.join(OPTIMIZERS)}")
        if self.precision not in PRECISIONS:
            raise ValueError(f"precision: {self.precision!r} is not one of {', '.join(PRECISIONS)}")
        if self.accumulation % self.processes:
            raise ValueError(f"accumulation: {self.accumulation} is not a multiple of processes, {self.processes}")
        if self.sharding not in SHARDINGS:
            raise ValueError(f"sharding: {self.sharding!r} is not one of {', '.join(SHARDINGS)}")
        if self.sharding != "none" and self.processes == 1:
            raise ValueError(f"sharding: {self.sharding} is among processes, and there is 1: raise it, or set none")
        if self.sharding != "none" and self.optimizer == "muon":
            raise ValueError(f"optimizer: muon needs whole matrices: set adamw, or sharding none for {self.sharding}")


@dataclass(frozen=True)
class Losses:
    """What an objective says of one batch."""

    total: torch.Tensor
    """Scalar: the sum of the losses, with gradient."""
    metrics: dict[str, tuple[torch.Tensor, torch.Tensor | float]]
    """By name (sum, count): logged as the ratio of the sums since the last log."""


Objective = Callable[[torch.nn.Module, dict], Losses]
Batches = list[dict]


class EpisodeTrainer(Trainer):
    """Minimises ``objective`` over ``rows`` as ``settings`` say. ``batch["weight"]`` sums to the loss's weight."""

    def __init__(
        self,
        model: PreTrainedModel,
        rows: Sequence[Row],
        objective: Objective,
        settings: TrainSettings,
        scratch: Path,
    ) -> None:
        if is_sharded(model) and settings.optimizer == "muon":
            raise ValueError("optimizer: muon needs whole matrices: set adamw for a sharded model")
        self.objective, self.settings, self.rows = objective, settings, rows
        if hasattr(model, "peft_config"):
            model.set_adapter("default")  # one that was loaded to play is frozen
        self._sums: dict[str, list] = {}
        arguments = _arguments(settings, scratch, model.device)
        plan = BatchPlan(
            [len(row) for row in rows],
            settings.batch_tokens,
            settings.seed,
            epochs=settings.epochs,
            batches=settings.steps and settings.steps * settings.accumulation * arguments.world_size,
            group=settings.accumulation * arguments.world_size,
        )
        super().__init__(
            model,
            arguments,
            train_dataset=plan,
            data_collator=lambda planned: pack([rows[i] for i in planned[0]]) | {"rows": torch.tensor(planned[0])},
        )
        self.model_accepts_loss_kwargs = True  # the loss is already averaged over the accumulated batches
        if is_sharded(model):  # accelerate's part is the precision alone, not DDP
            prepare = self.accelerator.prepare_model
            self.accelerator.prepare_model = lambda model, **_: prepare(model, False, evaluation_mode=True)
        self.remove_callback(PrinterCallback)  # without a terminal it would print every log
        if settings.gradient_checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})

    def beside(self) -> dict:
        """What :meth:`again` takes beside model, rows, settings and scratch, as JSON."""
        return {"objective": described(self.objective)}

    @classmethod
    def again(cls, model, rows, settings, scratch: Path, *, objective: dict) -> EpisodeTrainer:
        """The same trainer in another process."""
        return cls(model, rows, restored(objective), settings, scratch)

    def create_optimizer(self, model=None) -> torch.optim.Optimizer:
        if self.settings.optimizer == "adamw":
            return super().create_optimizer(model)
        if self.optimizer is None:
            self.optimizer = MuonWithAdamW(self.model, self.settings.learning_rate, self.settings.weight_decay)
        return self.optimizer

    def _move_model_to_device(self, model, device) -> None:
        if not is_sharded(model):
            super()._move_model_to_device(model, device)

    def save_model(self, output_dir=None, _internal_call: bool = False) -> None:
        if not is_sharded(self.model):
            return super().save_model(output_dir, _internal_call)
        if not _internal_call:  # of a state the weights are with the optimizer's
            raise RuntimeError("the model is sharded: gather its weights with sharding.whole_tensor in every process")

    def _save_optimizer_and_scheduler(self, output_dir) -> None:
        if not is_sharded(self.model):
            return super()._save_optimizer_and_scheduler(output_dir)
        save_shards(self.model, self.optimizer.optimizer, Path(output_dir) / "shards")
        if self.args.should_save:
            torch.save(self.lr_scheduler.state_dict(), Path(output_dir) / "scheduler.pt")

    def _load_from_checkpoint(self, resume_from_checkpoint, model=None) -> None:
        if not is_sharded(self.model):
            super()._load_from_checkpoint(resume_from_checkpoint, model)

    def _load_optimizer_and_scheduler(self, checkpoint) -> None:
        if not is_sharded(self.model):
            return super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            load_shards(self.model, self.optimizer.optimizer, Path(checkpoint) / "shards")
            self.lr_scheduler.load_state_dict(torch.load(Path(checkpoint) / "scheduler.pt", weights_only=True))

    def _get_train_sampler(self, train_dataset=None) -> SequentialSampler:
        return SequentialSampler(self.train_dataset)

    def get_batch_samples(self, epoch_iterator, num_batches: int, device) -> tuple[Batches, torch.Tensor]:
        """The step's batches and their weight over all processes."""
        batches = self.step_batches(epoch_iterator, num_batches)
        weight = sum(batch["weight"].sum() for batch in batches).to(device)
        if self.args.world_size > 1:
            weight = self.accelerator.gather(weight).sum()
        return batches, weight

    def step_batches(self, epoch_iterator, num_batches: int) -> Batches:
        """The batches of one optimizer step. Online trainers make theirs here, from the current weights."""
        return [next(epoch_iterator) for _ in range(num_batches)]

    def decided_by(self) -> list[Mapping[str, torch.Tensor]]:
        """Named tensors that decide the run beside settings and rows: a state in scratch is resumed from if all are the
        same."""
        return [self.model.state_dict()]

    def compute_loss(self, model, inputs, return_outputs: bool = False, num_items_in_batch=None) -> torch.Tensor:
        losses = self.objective(model, inputs)
        for name, (total, count) in losses.metrics.items():
            self.note(name, total, count)
        # DDP and FSDP2 average gradients over processes; the weight already counts them all. Online trainers may find
        # nothing to learn from: then weight and loss are 0, and so is the gradient
        return losses.total / num_items_in_batch.clamp(min=1e-8) * self.accelerator.num_processes

    def note(self, name: str, total: torch.Tensor | float, count: torch.Tensor | float) -> None:
        """Log the ratio of the sums since the last log as ``name``."""
        sums = self._sums.setdefault(name, [0.0, 0.0])
        sums[0] += torch.as_tensor(total).detach()
        sums[1] += torch.as_tensor(count).detach()

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "loss" in logs and not torch.isfinite(torch.tensor(float(logs["loss"]))):
            raise FloatingPointError(
                f"the loss is {logs['loss']} at step {self.state.global_step}; lower learning_rate"
            )
        super().log({**logs, **{name: float(a / b) for name, (a, b) in self._noted().items() if b}}, start_time)
        self._sums.clear()

    def _noted(self) -> dict[str, Sequence]:
        """The sums since the last log, over all processes, which note the same names."""
        if self.args.world_size == 1 or not self._sums:
            return self._sums
        sums = torch.tensor([[float(x) for x in pair] for pair in self._sums.values()], device=self.args.device)
        return dict(zip(self._sums, self.accelerator.reduce(sums)))

    def floating_point_ops(self, inputs) -> int:
        return 0  # counted from tokens where it matters


def fit(trainer: EpisodeTrainer) -> dict:
    """Train to the end, from the last state in scratch if this very run left one. Returns what happened.

    Keys: ``steps``, ``rows``, ``loss`` (mean of the last logged stretch), ``curve`` (list of {step, loss, …}),
    ``tokens`` (of the rows, over all epochs and processes), ``seconds`` and ``resumed_from`` (step).
    """
    scratch = Path(trainer.args.output_dir)
    digest = _digest(trainer)
    with trainer.args.main_process_first():  # the others find scratch as it left it
        state = resume_point(scratch, digest)
    start = time.perf_counter()
    with packed_attention(trainer.model):
        trainer.train(resume_from_checkpoint=str(state) if state else None)
    seconds = time.perf_counter() - start
    trainer.model.eval()
    curve = [{k: v for k, v in entry.items() if k != "epoch"} for entry in trainer.state.log_history if "loss" in entry]
    return {
        "steps": trainer.state.global_step,
        "rows": len(trainer.rows),
        "loss": curve[-1]["loss"],
        "curve": curve,
        "tokens": sum(len(trainer.rows[i]) for batch in trainer.train_dataset for i in batch),
        "seconds": seconds,
        "resumed_from": int(state.name.split("-")[1]) if state else 0,
    }


def resume_point(scratch: Path, digest: str) -> Path | None:
    """The newest whole state in ``scratch``, if the run of ``digest`` left it; what another run left is removed."""
    scratch.mkdir(parents=True, exist_ok=True)
    owner = scratch / _RUN
    if not owner.exists() or json.loads(owner.read_text())["digest"] != digest:
        for state in scratch.glob("checkpoint-*"):
            shutil.rmtree(state)
        for scores in scratch.glob("scores-*.npy"):
            scores.unlink()
        with atomic_write(owner) as aside:
            aside.write_text(json.dumps({"digest": digest}) + "\n")
        return None
    # trainer_state.json is the last file of a state to be written
    states = [state for state in scratch.glob("checkpoint-*") if (state / "trainer_state.json").exists()]
    return max(states, key=lambda state: int(state.name.split("-")[1]), default=None)


def _digest(trainer: EpisodeTrainer) -> str:
    """SHA-256 of settings, rows, weights and the model's configuration, which says what is made of the weights: what
    decides a run."""
    settings = {**asdict(trainer.settings), "world_size": trainer.args.world_size, "sharded": is_sharded(trainer.model)}
    total = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    total.update(trainer.model.config.to_json_string().encode())
    for row in trainer.rows:
        total.update(row.input_ids.tobytes() + repr(row.branches).encode())
        for column in row.columns.values():
            total.update(column.tobytes())
    for part in trainer.decided_by():
        hash_tensors(total, part)
    return total.hexdigest()


def hash_tensors(total: hashlib._Hash, tensors: Mapping[str, torch.Tensor]) -> None:
    """Add names and bytes of all ``tensors`` to a running digest."""
    for name, tensor in tensors.items():
        total.update(name.encode())
        total.update(whole_tensor(tensor.detach()).cpu().contiguous().reshape(-1).view(torch.uint8).numpy())


def step_arguments(settings: TrainSettings) -> dict:
    """What an optimizer step is, as keyword arguments of transformers' and TRL's trainers."""
    return {
        "learning_rate": settings.learning_rate,
        "gradient_accumulation_steps": settings.accumulation,
        "lr_scheduler_type": settings.schedule if settings.schedule != "constant" else "constant_with_warmup",
        "warmup_steps": settings.warmup,
        "weight_decay": settings.weight_decay,
        "max_grad_norm": settings.max_grad_norm,
        "bf16": settings.precision == "bfloat16",
    }


def _arguments(settings: TrainSettings, scratch: Path, device: torch.device) -> TrainingArguments:
    """Training happens where the model lies."""
    return TrainingArguments(
        output_dir=str(scratch),
        num_train_epochs=1,  # the plan holds all of them
        per_device_train_batch_size=1,  # one planned batch
        **step_arguments(settings),
        save_strategy="steps" if settings.save_every else "no",
        save_steps=settings.save_every or 500,
        save_total_limit=2,
        logging_steps=0.02,
        logging_nan_inf_filter=False,
        disable_tqdm=not sys.stderr.isatty(),
        report_to="none",
        seed=settings.seed,
        use_cpu=device.type == "cpu",
        dataloader_pin_memory=device.type != "cpu",
        remove_unused_columns=False,
    )
