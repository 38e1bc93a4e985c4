"""Training of each kind: whole in one process, or sharded among those of torchrun (``-m tests.model.sharded``)."""

import os
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from torch.distributed.tensor import DTensor

from agentprm_core.improve.policy_gradient import GradientSettings, GradientTrainer, RowWriter
from agentprm_core.improve.sft import SftSettings, sft_objective, sft_row
from agentprm_core.policy.models import Checkpoint
from agentprm_core.prm.losses import prm_objective, soft_bce
from agentprm_core.prm.model import new_prm
from agentprm_core.prm.promise_progress import PromiseProgressTrainer
from agentprm_core.prm.rows import Labelled, Tried, prm_row
from agentprm_core.prm.train import PrmSettings
from agentprm_core.training.sharding import shard, whole_tensor
from agentprm_core.training.trainer import EpisodeTrainer, fit
from tests.model import text_world

SFT = SftSettings(5e-3, 512, 0, steps=3)
PRM = PrmSettings(5e-3, 1024, 0, steps=3)


def adapted(model):
    torch.manual_seed(0)
    return get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj", "v_proj"]))


def policy_rows(renderer):
    model = text_world.small_model(renderer)
    return [sft_row(episode, renderer, model, 0.5) for episode in text_world.episodes(40)]


def labelled_rows(renderer):
    """With other actions tried beside."""
    episodes = text_world.episodes(40, skill=0.4)
    worths = [np.array([float(text_world.is_right(turn)) for turn in episode.turns]) for episode in episodes]
    return [prm_row(Labelled(e, q, [Tried(1, "go to cabinet 1", 0.25)]), renderer) for e, q in zip(episodes, worths)]


def sft(renderer, **changes):
    settings = replace(SFT, **changes)
    return text_world.small_model(renderer), policy_rows(renderer), partial(_plain, sft_objective), settings


def lora(renderer):
    return adapted(text_world.small_model(renderer)), policy_rows(renderer), partial(_plain, sft_objective), SFT


def prm(renderer, likelihood=0.0, with_adapter=False):
    model = text_world.small_model(renderer)
    prm = new_prm(adapted(model) if with_adapter else model, likelihood)
    return prm, labelled_rows(renderer), partial(_plain, prm_objective(soft_bce)), PRM


def gradient(renderer):
    model = text_world.small_model(renderer)
    policy = Checkpoint(model, renderer.tokenizer, renderer, digest="untrained")
    rows = [RowWriter(policy).row(e, np.full(len(e.turns), 1.0 if e.won else -1.0)) for e in text_world.episodes(40)]
    settings = GradientSettings(5e-3, 512, 0, steps=3, beta=0.5)
    return model, rows, lambda model, rows, settings, out: GradientTrainer(model, rows, settings, out), settings


def promise(renderer):
    won = [episode.won for episode in text_world.episodes(40, skill=0.4)]
    rows = [prm_row(Labelled(e, np.zeros(len(e.turns))), renderer) for e in text_world.episodes(40, skill=0.4)]
    model = new_prm(text_world.small_model(renderer))
    return model, rows, lambda m, r, s, out: PromiseProgressTrainer(m, r, won, s, out), PRM


def _plain(objective, model, rows, settings, out):
    return EpisodeTrainer(model, rows, objective, settings, out)


CASES = {
    "sft": sft,
    "checkpointing": partial(sft, gradient_checkpointing=True),
    "bfloat16": partial(sft, precision="bfloat16"),
    "accumulation": partial(sft, accumulation=2),
    "lora": lora,
    "prm": prm,
    "likelihood": partial(prm, likelihood=0.3),
    "prm_lora": partial(prm, with_adapter=True),
    "gradient": gradient,
    "promise": promise,
}


def trained(name: str, out: Path, processes: int, sharded: bool) -> tuple[dict[str, torch.Tensor], dict]:
    """The whole weights at the end, and what ``fit`` says."""
    model, rows, trainer_of, settings = CASES[name](text_world.renderer())
    settings = replace(settings, accumulation=settings.accumulation * (2 if processes == 1 else 1))
    if sharded:
        shard(model, "cpu", settings.precision)
    trainer = trainer_of(model, rows, settings, out)
    if sharded:
        check_parts(trainer, processes)
    metrics = fit(trainer)
    return {n: whole_tensor(p.detach()).clone() for n, p in trainer.model.named_parameters()}, metrics


def check_parts(trainer: EpisodeTrainer, processes: int) -> None:
    """At each optimizer step this process holds its part of weights and gradients, after it that of the state."""
    step = trainer.optimizer.step

    def checked() -> None:
        for p in trainer.model.parameters():
            check(p)
            if p.requires_grad:
                check(p.grad)
        step()
        for p in trainer.model.parameters():
            if p.requires_grad:
                check(trainer.optimizer.state[p]["exp_avg"])

    def check(tensor) -> None:
        assert isinstance(tensor, DTensor)
        assert len(tensor.to_local()) <= -(-len(tensor) // processes)

    trainer.optimizer.step = checked


if __name__ == "__main__":
    torch.set_num_threads(1)
    processes = int(os.environ["WORLD_SIZE"])
    folder = Path(sys.argv[1])
    for name in sys.argv[2:]:
        found = trained(name, folder / "scratch" / name, processes, sharded=True)
        if os.environ["RANK"] == "0":
            torch.save(found, folder / f"{name}.pt")
    torch.distributed.destroy_process_group()
