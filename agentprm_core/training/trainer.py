"""The one training loop: planned batches of whole episodes, on one process or several.

1. The plan of batches (:class:`agentprm_core.training.packing.BatchPlan`) is made before the run, so order, size and
   number of steps follow from the seed, and a killed run continues with the batch that is due.
2. An objective returns a *sum* of losses. The step's loss is its ratio to the sum of ``loss_weight`` over all processes
   and accumulated batches, so neither changes the gradient.
3. A loss that is not finite stops the run.
4. Scratch space belongs to one run: a digest of settings, data and first weights is kept beside the states, and another
   run's are not resumed from.

Several processes average gradients (DDP), each with whole weights. A model that is sharded
(:mod:`agentprm_core.training.sharding`) does that itself.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_
from torch.optim import AdamW

from agentprm_core.progress import progress, watcher
from agentprm_core.training.attention import packed_attention
from agentprm_core.training.compiling import compiled_layers
from agentprm_core.training.muon import MuonWithAdamW
from agentprm_core.training.naming import described, restored
from agentprm_core.training.packing import Batch, BatchPlan, Row, pack
from agentprm_core.training.precision import computing_in
from agentprm_core.training.processes import Processes
from agentprm_core.training.settings import MAX_GRAD_NORM, TrainSettings, rate_factor
from agentprm_core.training.sharding import is_sharded, whole_tensor
from agentprm_core.training.states import Learner, load_state, resume_point, save_state, step_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class Losses:
    """What an objective says of one batch."""

    total: torch.Tensor
    """Scalar: the sum of the losses, with gradient."""
    metrics: Mapping[str, tuple[torch.Tensor, torch.Tensor | float]]
    """By name (sum, count): logged as the ratio of the sums since the last log."""


Objective = Callable[[torch.nn.Module, Any], Losses]
"""Of a model and a packed batch, of the columns that it names by type."""
Batches = list[Batch]
S = TypeVar("S", bound=TrainSettings)
LOGGED = 50
"""Entries of a whole run's log."""


class Callback(Protocol):
    """Looks on while a model is trained. It may add entries to ``trainer.log``, which states keep."""

    def on_begin(self, trainer: EpisodeTrainer) -> None:
        """Before the first step of this process, also of a resumed run."""
        ...

    def on_step(self, trainer: EpisodeTrainer) -> bool:
        """After ``trainer.step`` steps; True ends the training."""
        ...

    def on_end(self, trainer: EpisodeTrainer) -> None:
        """After the last step."""
        ...


class EpisodeTrainer(Generic[S]):
    """Minimises ``objective`` over ``rows`` as ``settings`` say, where the model lies."""

    def __init__(
        self, model: PreTrainedModel, rows: Sequence[Row], objective: Objective, settings: S, scratch: Path
    ) -> None:
        self.sharded = is_sharded(model)
        if self.sharded and settings.optimizer == "muon":
            raise ValueError("optimizer: muon needs whole matrices: set adamw for a sharded model")
        self.model, self.rows, self.objective, self.settings = model, rows, objective, settings
        self.scratch, self.callbacks = scratch, list[Callback]()
        self.processes = Processes.joined(model.device)
        if hasattr(model, "peft_config"):
            model.set_adapter("default")  # one that was loaded to play is frozen
        if settings.gradient_checkpointing:
            # transformers 5.17 has the second name alone, 5.23 warns of it
            enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
            enable({"use_reentrant": False})
        self._group = settings.accumulation * self.processes.count
        batches = settings.steps and settings.steps * self._group
        lengths = [len(row) for row in rows]
        self.plan = BatchPlan(
            lengths, settings.batch_tokens, settings.seed, epochs=settings.epochs, batches=batches, group=self._group
        )
        self.steps, self.step = len(self.plan) // self._group, 0
        """Optimizer steps of the whole run, and those taken."""
        self._trained = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = _optimizer(model, self._trained, settings)
        self._learner = Learner(model, self.optimizer, self.processes, self.sharded)
        self._rates = [group["lr"] for group in self.optimizer.param_groups]
        self.log: list[dict] = []
        self._sums: dict[str, Any] = {}
        """By name (sum, count): a list, or a tensor of two where a state was loaded."""
        self.run = ""
        """From ``train`` on: of what decides the run. Scratch files of that name are this very run's."""
        self._tokens = torch.zeros((), dtype=torch.float64, device=model.device)

    def beside(self) -> dict:
        """What :meth:`again` takes beside model, rows, settings and scratch, as JSON."""
        return {"objective": described(self.objective)}

    @classmethod
    def again(cls, model, rows, settings, scratch: Path, beside: Mapping) -> EpisodeTrainer:
        """The same trainer in another process, of what :meth:`beside` said in this one."""
        return cls(model, rows, restored(beside["objective"]), settings, scratch)

    def decided_by(self) -> list[Mapping[str, torch.Tensor]]:
        """Named tensors that decide the run beside settings and rows: a state in scratch is resumed from if all are the
        same."""
        return [self.model.state_dict()]

    @property
    def tokens(self) -> int:
        """That all processes have read in the steps taken."""
        return int(self._tokens)

    def due(self, step: int) -> list[list[int]]:
        """The rows of each batch of this process in ``step``."""
        group = self.plan[step * self._group : (step + 1) * self._group]
        return group[self.processes.rank :: self.processes.count]

    def batches(self, step: int) -> Batches:
        """This process's batches of one optimizer step, on its device. Online trainers make theirs here, from the
        current weights."""
        device = self.processes.device
        return [pack([self.rows[i] for i in numbers], numbers).to(device) for numbers in self.due(step)]

    def note(self, name: str, total: torch.Tensor | float, count: torch.Tensor | float) -> None:
        """Log the ratio of the sums since the last log as ``name``."""
        sums = self._sums.setdefault(name, [torch.zeros((), dtype=torch.float64)] * 2)
        self._sums[name] = [a + torch.as_tensor(b).detach().double() for a, b in zip(sums, (total, count))]

    def train(self) -> int:
        """To the end, from the last state in scratch if this very run left one; the step of that state, or 0."""
        state, ended = self._last_state(), False
        torch.manual_seed(self.settings.seed)
        if state is not None:
            said, self._sums = load_state(state, self._learner)
            self.step, self.log, ended = step_of(state), said["log"], said["ended"]
            self._tokens += said["tokens"]
        compiled = compiled_layers(self.model, self.settings.compiled)
        with packed_attention(self.model), computing_in(self.model, self.settings.precision), compiled:
            self._train(ended)
        self.model.eval()
        return step_of(state) if state else 0

    def _train(self, ended: bool) -> None:
        first = self.processes.rank == 0
        model = self.model if self.sharded else self.processes.share(self.model)
        model.train()
        for callback in self.callbacks:
            callback.on_begin(self)
        stretch = math.ceil(self.steps / LOGGED)
        with progress(self.steps, "step", self.step) if first else nullcontext() as shown:
            while self.step < self.steps and not ended:
                norm = self._take_step(model)
                self.step += 1
                ended = any([callback.on_step(self) for callback in self.callbacks])
                # counted from the end, so that the last stretch is a whole one
                if ended or (self.steps - self.step) % stretch == 0:
                    self._end_stretch(norm)
                self._keep(ended)
                if shown:
                    shown.update()
        for callback in self.callbacks:
            callback.on_end(self)

    def _take_step(self, model: torch.nn.Module) -> torch.Tensor:
        """One optimizer step; the length of its gradient."""
        batches, count = self.batches(self.step), self.processes.count
        weight = torch.stack([batch.columns.loss_weight.sum() for batch in batches]).sum()
        tokens = weight.new_tensor(sum(len(batch.input_ids) for batch in batches))
        weight, tokens = self.processes.sum(torch.stack([weight, tokens]))
        self._tokens += tokens
        said = torch.zeros((), device=self.processes.device)
        for number, batch in enumerate(batches, 1):
            waits = number < len(batches)
            with model.no_sync() if waits and isinstance(model, DistributedDataParallel) else nullcontext():
                losses = self.objective(model, batch)
                # gradients are averaged over processes, and the weight counts them all. Where there is nothing to learn
                # from, weight and loss are 0, and so is the gradient
                loss = losses.total / weight.clamp(min=1e-8) * count
                loss.backward()
            said += loss.detach()
            for name, (total, of) in losses.metrics.items():
                self.note(name, total, of)
        self.note("loss", said, 1)
        norm = whole_tensor(clip_grad_norm_(self._trained, MAX_GRAD_NORM))
        factor = rate_factor(self.step, self.steps, self.settings.warmup)
        for group, rate in zip(self.optimizer.param_groups, self._rates):
            group["lr"] = rate * factor
        self.optimizer.step()
        self.optimizer.zero_grad()
        return norm

    def _end_stretch(self, norm: torch.Tensor) -> None:
        """An entry of the log: what was noted since the last, over all processes, which note the same names."""
        noted = [[float(total), float(count)] for total, count in self._sums.values()]
        sums = self.processes.sum(torch.tensor(noted, dtype=torch.float64)).tolist()
        found = {name: total / count for name, (total, count) in zip(self._sums, sums) if count}
        self._check(found["loss"])
        rate = self.settings.learning_rate * rate_factor(self.step - 1, self.steps, self.settings.warmup)
        self.log.append({"step": self.step, **found, "grad_norm": float(norm), "learning_rate": rate})
        watcher().trained(self.step, self.log[-1])
        self._sums = {}

    def _check(self, loss: float) -> None:
        if not math.isfinite(loss):
            raise FloatingPointError(f"the loss is {loss} at step {self.step}; lower learning_rate")

    def _keep(self, ended: bool) -> None:
        """A state, where one is due."""
        every, last = self.settings.save_every, ended or self.step == self.steps
        if not every or not (last or self.step % every == 0):
            return
        if "loss" in self._sums:
            self._check(float(self.processes.sum(self._sums["loss"][0])))
        said = {"log": self.log, "ended": last, "tokens": self.tokens}
        own = {name: torch.stack([x.cpu() for x in pair]) for name, pair in self._sums.items()}
        save_state(self.scratch / f"checkpoint-{self.step}", self._learner, said, own)

    def _last_state(self) -> Path | None:
        digest = _digest(self)
        self.run = digest[:12]
        state = resume_point(self.scratch, digest) if self.processes.rank == 0 else None
        self.processes.wait()  # the others find scratch as the first has left it
        return resume_point(self.scratch, digest) if self.processes.rank else state


def _optimizer(model, trained: Sequence[torch.nn.Parameter], settings: TrainSettings) -> torch.optim.Optimizer:
    if settings.optimizer == "muon":
        return MuonWithAdamW(model, settings.learning_rate, settings.precision)
    return AdamW(trained, settings.learning_rate, weight_decay=0.0, fused=True)


def fit(trainer: EpisodeTrainer) -> dict:
    """Train to the end, from the last state in scratch if this very run left one. Returns what happened.

    Keys: ``steps``, ``rows``, ``loss`` (mean of the last logged stretch), ``curve`` (list of {step, loss, …}),
    ``tokens`` (of the rows, over all epochs and processes), ``tokens_trained`` (that the steps taken read, branches and
    all), ``seconds`` and ``resumed_from`` (step).

    Raises:
        FloatingPointError: a loss that is not finite.
    """
    start = time.perf_counter()
    resumed_from = trainer.train()
    curve = [entry for entry in trainer.log if "loss" in entry]
    return {
        "steps": trainer.step,
        "rows": len(trainer.rows),
        "loss": curve[-1]["loss"],
        "curve": curve,
        "tokens": sum(len(trainer.rows[i]) for batch in trainer.plan for i in batch),
        "tokens_trained": trainer.tokens,
        "seconds": time.perf_counter() - start,
        "resumed_from": resumed_from,
    }


def _digest(trainer: EpisodeTrainer) -> str:
    """SHA-256 of settings, rows, weights and the model's configuration, which says what is made of the weights: what
    decides a run."""
    settings = {**asdict(trainer.settings), "world_size": trainer.processes.count, "sharded": trainer.sharded}
    total = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    total.update(trainer.model.config.to_json_string().encode())
    for row in trainer.rows:
        total.update(row.input_ids.tobytes() + repr(row.branches).encode())
        for name in row.columns.names():
            total.update(getattr(row.columns, name).tobytes())
    for part in trainer.decided_by():
        hash_tensors(total, part)
    return total.hexdigest()


def hash_tensors(total: hashlib._Hash, tensors: Mapping[str, torch.Tensor]) -> None:
    """Add names and bytes of all ``tensors`` to a running digest."""
    for name, tensor in tensors.items():
        total.update(name.encode())
        flat_N = whole_tensor(tensor.detach()).cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        total.update(flat_N)  # pyright: ignore[reportArgumentType]: an array is a buffer
