"""Training on several processes of one machine, started and ended by the caller's, which does everything else alone.

``fit`` hands the trainer's model, rows and settings to ``torchrun`` in files under its scratch (safetensors and JSON),
waits, and puts the trained weights back into the model. The processes share the batches that one would accumulate, so
the step is the same and so are the weights, up to rounding; with ``settings.sharding`` they share the weights, too.
Their states lie in the same scratch, and they end when the caller does.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from safetensors import numpy as arrays
from safetensors.torch import load_file, load_model, save_file, save_model

from agentprm_core.datasets import atomic_write
from agentprm_core.errors import DataError, out_of_memory
from agentprm_core.policy.models import adapter_of, without_adapter
from agentprm_core.training import trainer as training
from agentprm_core.training.columns import C, joined
from agentprm_core.training.naming import name_of, named
from agentprm_core.training.packing import Row
from agentprm_core.training.sharding import shard, whole_tensor
from agentprm_core.training.trainer import EpisodeTrainer

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_JOB, _ROWS, _WEIGHTS, _TRAINED, _METRICS, _ERROR = (
    "job.json", "rows.safetensors", "weights.safetensors", "trained.safetensors", "metrics.json", "error.json"
)  # fmt: skip
_EXPECTED = {error.__name__: error for error in (DataError, FloatingPointError, MemoryError)}


def fit(trainer: EpisodeTrainer) -> dict:
    """:func:`agentprm_core.training.trainer.fit` on ``settings.processes`` processes; the model is trained in place.
    In the end its weights are mixed with those that it started from (``settings.mixing``).

    Raises:
        MemoryError: one of them had not enough.
        RuntimeError: one of them ended; what it said is on standard error.
    """
    mixing = trainer.settings.mixing
    # kept off the device, where it has no place beside the optimizer
    start = {name: p.detach().to("cpu", copy=True) for name, p in _trained(trainer.model)} if mixing < 1 else {}
    metrics = training.fit(trainer) if trainer.settings.processes == 1 else _fit_on_several(trainer)
    with torch.no_grad():
        for name, weight in _trained(trainer.model):
            if name in start:
                weight.copy_(torch.lerp(start[name].to(weight.device), weight, mixing))
    return metrics


def _trained(model: PreTrainedModel) -> Iterator[tuple[str, torch.nn.Parameter]]:
    return ((name, weight) for name, weight in model.named_parameters() if weight.requires_grad)


def _fit_on_several(trainer: EpisodeTrainer) -> dict:
    folder = trainer.scratch / "processes"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    device = trainer.model.device
    # the place on the device is the processes'
    trainer.model.to("cpu")  # pyright: ignore[reportArgumentType]: transformers wraps it
    if device.type == "cuda":
        torch.cuda.empty_cache()
    _write_job(trainer, folder, device)
    _run(folder, trainer.settings.processes)
    trained = load_file(folder / _TRAINED)
    with torch.no_grad():
        for name, weight in _trained(trainer.model):
            weight.copy_(trained[name])
    trainer.model.to(device)  # pyright: ignore[reportArgumentType]: transformers wraps it
    trainer.model.eval()
    metrics = json.loads((folder / _METRICS).read_text())
    shutil.rmtree(folder)
    return metrics


def _run(folder: Path, processes: int) -> None:
    """One process per number, each of which has the end of a pipe to this one as standard input."""
    launch = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command = [sys.executable, "-m", *launch, "-m", __name__, str(folder.resolve())]
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    running = subprocess.Popen(command, stdin=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path})
    assert running.stdin is not None  # it is a pipe
    try:
        status = running.wait()
    finally:
        running.stdin.close()
        running.wait()
    if (folder / _ERROR).exists():
        error = json.loads((folder / _ERROR).read_text())
        raise _EXPECTED[error["kind"]](error["said"])
    if status:
        raise RuntimeError(f"a process of the training ended (torchrun: exit status {status}); what it said is above")


def _write_job(trainer: EpisodeTrainer, folder: Path, device: torch.device) -> None:
    settings = trainer.settings
    accumulation = settings.accumulation // settings.processes
    each = replace(settings, processes=1, sharding="none", accumulation=accumulation, mixing=1.0)
    model = trainer.model
    base = without_adapter(model)
    base.config.save_pretrained(folder)
    if base is not model:
        replace(adapter_of(model), inference_mode=False).save_pretrained(str(folder))
    save_model(model, str(folder / _WEIGHTS))
    write_rows(trainer.rows, folder / _ROWS)
    job = {
        "trainer": name_of(type(trainer)),
        "settings": [name_of(type(each)), asdict(each)],
        "columns": name_of(type(trainer.rows[0].columns)),
        "model": name_of(type(base)),
        "device": device.type,
        "sharding": settings.sharding,
        "threads": torch.get_num_threads(),
        "beside": trainer.beside(),
    }
    (folder / _JOB).write_text(json.dumps(job))


def _read_job(folder: Path) -> EpisodeTrainer:
    job = json.loads((folder / _JOB).read_text())
    torch.set_num_threads(job["threads"])
    kind = named(job["model"])
    model: PreTrainedModel = kind(kind.config_class.from_pretrained(folder))
    if (folder / "adapter_config.json").exists():
        from peft import PeftConfig, get_peft_model

        model = cast("PreTrainedModel", get_peft_model(model, PeftConfig.from_pretrained(str(folder))))
    load_model(model, str(folder / _WEIGHTS))
    if job["device"] == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    name, values = job["settings"]
    settings = named(name)(**values)
    if job["sharding"] == "fsdp2":
        shard(model, job["device"], settings.precision)
    else:
        model.to(job["device"])
    rows = read_rows(folder / _ROWS, named(job["columns"]))
    return named(job["trainer"]).again(model, rows, settings, folder.parent, job["beside"])


def write_rows(rows: Sequence[Row], path: Path) -> None:
    """End to end, by column."""
    columns = joined([row.columns for row in rows])
    branches = [branch for row in rows for branch in row.branches]
    arrays.save_file(
        {
            "input_ids": np.concatenate([row.input_ids for row in rows]),
            "tokens": np.array([len(row) for row in rows]),
            "branches": np.array(branches, dtype=np.int64).reshape(-1, 2),
            "branched": np.array([len(row.branches) for row in rows]),
            **{f"column.{name}": getattr(columns, name) for name in columns.names()},
        },
        path,
    )


def read_rows(path: Path, kind: type[C]) -> list[Row[C]]:
    """What :func:`write_rows` wrote; ``kind``: of its columns."""
    found = arrays.load_file(path)
    ends, branched = (np.cumsum([0, *found[name]]) for name in ("tokens", "branched"))
    return [
        Row(
            found["input_ids"][start:end],
            kind(**{name: found[f"column.{name}"][start:end] for name in kind.names()}),
            [(int(at), int(length)) for at, length in found["branches"][first:last]],
        )
        for (start, end), (first, last) in zip(pairwise(ends), pairwise(branched))
    ]


def _end_with_the_caller() -> None:
    """Nothing is ever written to the pipe: what is read is its end."""
    os.read(sys.stdin.fileno(), 1)
    os._exit(1)


def main(folder: Path) -> None:
    """One of the processes."""
    threading.Thread(target=_end_with_the_caller, daemon=True).start()
    try:
        trainer = _read_job(folder)
        metrics = training.fit(trainer)
    except Exception as error:
        kinds = [name for name, known in _EXPECTED.items() if isinstance(error, known)]
        kind = "MemoryError" if out_of_memory(error) else next(iter(kinds), None)
        if kind is None:
            raise
        with atomic_write(folder / _ERROR) as aside:
            aside.write_text(json.dumps({"kind": kind, "said": str(error)}))
        sys.exit(1)
    trained = {}
    for name, p in _trained(trainer.model):
        weight = whole_tensor(p.detach())  # all processes take part
        if trainer.processes.rank == 0:
            trained[name] = weight.cpu()
    if trainer.processes.rank == 0:
        save_file(trained, folder / _TRAINED)
        (folder / _METRICS).write_text(json.dumps(metrics))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
