"""The training loop: a killed run ends where an uninterrupted one does; processes and accumulation change nothing."""

import dataclasses
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import get_cosine_schedule_with_warmup

from agentprm_core.improve.online_dpo import DpoSettings, OnlineDpoTrainer
from agentprm_core.improve.sft import SftSettings, sft_objective, sft_row, train_sft
from agentprm_core.policy.models import Checkpoint
from agentprm_core.prm.model import new_prm
from agentprm_core.prm.promise_progress import PromiseProgressTrainer
from agentprm_core.prm.rows import Labelled, prm_row
from agentprm_core.prm.train import PrmSettings
from agentprm_core.training.compiling import compiled_layers
from agentprm_core.training.settings import rate_factor
from agentprm_core.training.states import resume_point
from agentprm_core.training.trainer import EpisodeTrainer, fit
from tests.model import text_world

SFT = SftSettings(learning_rate=5e-3, batch_tokens=512, seed=0, steps=9, save_every=2)


@pytest.fixture(scope="module")
def renderer():
    return text_world.renderer()


class Killed(Exception):
    pass


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def sft_trainer(renderer, scratch, settings=SFT):
    model = text_world.small_model(renderer)
    rows = [sft_row(episode, renderer, model, 0.5) for episode in text_world.episodes(60)]
    return EpisodeTrainer(model, rows, sft_objective, settings, scratch)


def dpo_trainer(renderer, scratch):
    model, prm = text_world.small_model(renderer), new_prm(text_world.small_model(renderer, seed=1))
    torch.manual_seed(2)
    torch.nn.init.normal_(prm.score.weight, std=1.0)
    settings = DpoSettings(1e-3, 512, 0, steps=9, save_every=2, refresh_every=2, samples=3, beta=0.1)
    policy, scorer = (Checkpoint(m.eval(), renderer.tokenizer, renderer, "") for m in (model, prm))
    return OnlineDpoTrainer(text_world.episodes(40, skill=0.4), policy, scorer, settings, scratch)


def promise_trainer(renderer, scratch):
    prm, episodes = new_prm(text_world.small_model(renderer)), text_world.episodes(60, skill=0.4)
    rows = [prm_row(Labelled(episode, np.zeros(episode.length)), renderer) for episode in episodes]
    settings = PrmSettings(5e-3, 1024, 0, steps=9, save_every=2, loss="promise_progress", targets="epoch")
    return PromiseProgressTrainer(prm, rows, [episode.won for episode in episodes], settings, scratch)


@pytest.mark.parametrize("trainer_of", [sft_trainer, dpo_trainer, promise_trainer])
def test_a_killed_run_continues_to_the_same_weights(renderer, tmp_path, trainer_of):
    whole = trainer_of(renderer, tmp_path / "whole")
    first = fit(whole)
    assert first["resumed_from"] == 0
    killed = trainer_of(renderer, tmp_path / "killed")
    objective, calls = killed.objective, []

    def dies(model, batch):
        calls.append(1)
        if len(calls) == 6:
            raise Killed
        return objective(model, batch)

    killed.objective = dies
    with pytest.raises(Killed):
        fit(killed)
    again = trainer_of(renderer, tmp_path / "killed")
    metrics = fit(again)
    assert metrics["resumed_from"] == 4
    assert metrics["steps"] == 9
    assert metrics["tokens_trained"] == first["tokens_trained"] >= first["tokens"]
    assert torch.equal(weights(again.model), weights(whole.model))


def test_nothing_is_said_where_nothing_is_wrong(renderer, tmp_path, capfd, recwarn):
    """A run and one that resumes, of a model whose output is its embedding."""
    fit(sft_trainer(renderer, tmp_path))
    shutil.rmtree(tmp_path / "checkpoint-9")
    assert fit(sft_trainer(renderer, tmp_path))["resumed_from"] == 8
    assert capfd.readouterr() == ("", "")
    assert not recwarn.list


def test_the_curve_of_a_resumed_run_is_that_of_a_whole_one(renderer, tmp_path):
    """Also where a state lies within a logged stretch; 60 steps are logged by twos."""
    settings = dataclasses.replace(SFT, steps=60, save_every=5, batch_tokens=128)
    whole = fit(sft_trainer(renderer, tmp_path, settings))
    shutil.rmtree(tmp_path / "checkpoint-60")
    again = fit(sft_trainer(renderer, tmp_path, settings))
    assert again["resumed_from"] == 55
    assert again["curve"] == whole["curve"]
    assert [entry["step"] for entry in whole["curve"]] == list(range(2, 61, 2))
    assert set(whole["curve"][0]) == {
        "step", "loss", "grad_norm", "learning_rate",
        "action_loss", "observation_loss", "action_accuracy", "observation_accuracy",
    }  # fmt: skip


def test_the_rate_rises_and_falls_as_a_half_cosine():
    """As transformers' own schedule does."""
    for steps, warmup in ((9, 0.0), (40, 0.05), (101, 0.13)):
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], 1.0)
        theirs = get_cosine_schedule_with_warmup(optimizer, math.ceil(steps * warmup), steps)
        for step in range(steps):
            assert rate_factor(step, steps, warmup) == pytest.approx(theirs.get_last_lr()[0], abs=1e-12)
            optimizer.step()
            theirs.step()
    assert rate_factor(0, 1, 0.05) == 1.0  # theirs is 0: an only step would change nothing


def test_states_are_safetensors_and_json_and_two_are_kept(renderer, tmp_path):
    fit(sft_trainer(renderer, tmp_path))
    found = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    states = [f"checkpoint-{n}/{name}" for n in (8, 9) for name in ("process-0.safetensors", "state.json")]
    assert found == [*states, "run.json"]


def half(write):
    """``write`` as a kill leaves it: the first bytes of what was to be written."""

    def dies(path, *arguments):
        write(path, *arguments)
        path.write_bytes(path.read_bytes()[:10])
        raise Killed

    return dies


def test_scores_that_a_kill_left_half_written_are_made_again(renderer, tmp_path, monkeypatch):
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(np, "save", half(np.save))
        fit(promise_trainer(renderer, tmp_path))
    assert not list(tmp_path.glob("scores-*.npy"))
    assert fit(promise_trainer(renderer, tmp_path))["steps"] == 9


def test_an_owner_that_a_kill_left_half_written_is_written_again(tmp_path, monkeypatch):
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(Path, "write_text", half(Path.write_text))
        resume_point(tmp_path, "run")
    assert resume_point(tmp_path, "run") is None
    (tmp_path / "checkpoint-4").mkdir()
    (tmp_path / "checkpoint-4" / "state.json").write_text("{}")
    assert resume_point(tmp_path, "run").name == "checkpoint-4"


def test_another_runs_states_are_not_resumed_from(renderer, tmp_path):
    fit(sft_trainer(renderer, tmp_path))
    other = dataclasses.replace(SFT, learning_rate=1e-3)
    assert fit(sft_trainer(renderer, tmp_path, other))["resumed_from"] == 0


def test_another_prms_states_are_not_resumed_from(renderer, tmp_path):
    fit(dpo_trainer(renderer, tmp_path))
    assert fit(dpo_trainer(renderer, tmp_path))["resumed_from"] == 9
    other = dpo_trainer(renderer, tmp_path)
    torch.nn.init.normal_(other._prm.model.score.weight)
    assert fit(other)["resumed_from"] == 0


def test_what_else_lies_in_scratch_stays(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    resume_point(tmp_path, "run")
    resume_point(tmp_path, "another")
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_half_written_state_is_passed_over(tmp_path):
    assert resume_point(tmp_path, "run") is None
    for name, whole in (("checkpoint-4", True), ("checkpoint-10", False)):
        (tmp_path / name).mkdir()
        if whole:
            (tmp_path / name / "state.json").write_text("{}")
    assert resume_point(tmp_path, "run").name == "checkpoint-4"
    assert resume_point(tmp_path, "another") is None
    assert not list(tmp_path.glob("checkpoint-*"))


def test_accumulated_batches_are_one_batch(renderer, tmp_path):
    """The same rows in one batch or in batches of one: a step's loss is a mean over their weight either way."""
    rows = [sft_row(e, renderer, text_world.small_model(renderer), 0.5) for e in text_world.episodes(4, skill=0.3)]
    ends = []
    for name, tokens, accumulation in (("one", 10_000, 1), ("four", 1, 4)):
        settings = SftSettings(0.1, tokens, 0, steps=1, accumulation=accumulation, warmup=0.0)
        trainer = EpisodeTrainer(text_world.small_model(renderer), rows, sft_objective, settings, tmp_path / name)
        trainer.optimizer = torch.optim.SGD(trainer.model.parameters(), 0.1)
        fit(trainer)
        ends.append(weights(trainer.model))
    assert len({len(row) for row in rows}) > 1
    torch.testing.assert_close(*ends, atol=1e-6, rtol=0)


def test_gradient_checkpointing_changes_nothing(renderer, tmp_path):
    ends = []
    for on in (False, True):
        settings = dataclasses.replace(SFT, steps=2, save_every=0, gradient_checkpointing=on)
        trainer = sft_trainer(renderer, tmp_path / str(on), settings)
        fit(trainer)
        ends.append(weights(trainer.model))
    torch.testing.assert_close(*ends, atol=1e-6, rtol=0)


def test_bfloat16_comes_close(renderer, tmp_path):
    losses = []
    for precision in ("float32", "bfloat16"):
        settings = dataclasses.replace(SFT, precision=precision, save_every=0)
        _, metrics = train_sft(
            text_world.episodes(40), renderer, text_world.small_model(renderer), settings, tmp_path / precision
        )
        losses.append(metrics["loss"])
    assert losses[0] == pytest.approx(losses[1], rel=0.02)


def test_a_loss_that_is_not_finite_stops_the_run(renderer, tmp_path):
    trainer = sft_trainer(renderer, tmp_path)
    objective = trainer.objective
    trainer.objective = lambda model, batch: dataclasses.replace(
        losses := objective(model, batch), total=losses.total * float("nan")
    )
    with pytest.raises(FloatingPointError, match="the loss is nan at step 1; lower learning_rate"):
        fit(trainer)


_WORKER = """
import sys
import torch
from pathlib import Path
from tests.model.test_training import sft_trainer, weights
from agentprm_core.improve.sft import SftSettings
from agentprm_core.training.settings import rate_factor
from agentprm_core.training.states import resume_point
from agentprm_core.training.trainer import fit
from tests.model import text_world

torch.set_num_threads(1)
out, accumulation = Path(sys.argv[1]), int(sys.argv[2])
settings = SftSettings(5e-3, 512, 0, steps=6, accumulation=accumulation)
trainer = sft_trainer(text_world.renderer(), out, settings)
fit(trainer)
if trainer.processes.rank == 0:
    torch.save(weights(trainer.model), out / "weights.pt")
"""


@pytest.mark.slow
def test_two_processes_are_one(tmp_path):
    (tmp_path / "worker.py").write_text(_WORKER)
    root = Path(__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    ends = []
    for processes, accumulation in ((1, 4), (2, 2)):
        out = tmp_path / str(processes)
        out.mkdir()
        launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
        command = [sys.executable, *(launch if processes > 1 else []), str(tmp_path / "worker.py"), str(out)]
        subprocess.run([*command, str(accumulation)], check=True, cwd=root, env=environment, timeout=240)
        ends.append(torch.load(out / "weights.pt"))
    torch.testing.assert_close(*ends, atol=1e-4, rtol=0)


def test_layers_are_compiled_within_the_block_alone(renderer):
    model = text_world.small_model(renderer)
    with compiled_layers(model, True):
        assert all(layer._compiled_call_impl is not None for layer in model.model.layers)
    assert all(layer._compiled_call_impl is None for layer in model.model.layers)
    with compiled_layers(model, False):
        assert all(layer._compiled_call_impl is None for layer in model.model.layers)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs g++ on a CPU")
def test_compiled_layers_learn_the_same(renderer, tmp_path):
    settings = dataclasses.replace(SFT, steps=4, save_every=0)
    plain = sft_trainer(renderer, tmp_path / "plain", settings)
    compiled = sft_trainer(renderer, tmp_path / "compiled", dataclasses.replace(settings, compiled=True))
    assert [fit(trainer)["steps"] for trainer in (plain, compiled)] == [4, 4]
    torch.testing.assert_close(weights(plain.model), weights(compiled.model), atol=1e-4, rtol=1e-3)
