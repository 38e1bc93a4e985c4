"""Training on several processes from one: they are handed what there was, and what comes back is what one trains."""

import dataclasses
import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model

from agentprm_core.errors import DataError
from agentprm_core.improve.policy_gradient import GradientSettings, GradientTrainer, RowWriter
from agentprm_core.improve.sft import SftSettings, sft_objective, sft_row, train_sft
from agentprm_core.policy.decoding import Constrained
from agentprm_core.policy.models import Checkpoint
from agentprm_core.prm.inverse_train import inverse
from agentprm_core.prm.losses import prm_objective, relative
from agentprm_core.prm.model import new_prm
from agentprm_core.prm.promise_progress import PromiseProgressTrainer
from agentprm_core.prm.rows import Labelled, Tried, prm_row
from agentprm_core.prm.train import PrmSettings, train_prm, validate_prm
from agentprm_core.training import launch
from agentprm_core.training.naming import described, restored
from agentprm_core.training.trainer import EpisodeTrainer
from tests.model import text_world

ROOT = Path(__file__).parents[2]
SFT = SftSettings(5e-3, 512, 0, steps=3, accumulation=2, save_every=1)


@pytest.fixture(scope="module")
def renderer():
    return text_world.renderer()


def labelled(count=40):
    """Episodes with other actions tried beside: rows with branches."""
    episodes = text_world.episodes(count, skill=0.4)
    worths = [np.array([float(text_world.is_right(turn)) for turn in episode.turns]) for episode in episodes]
    return [Labelled(e, q, [Tried(1, "go to cabinet 1", 0.25)]) for e, q in zip(episodes, worths)]


def trainers(renderer, scratch):
    """One of each kind that several processes may run."""
    model = text_world.small_model(renderer)
    rows = [sft_row(episode, renderer, model, 0.5) for episode in text_world.episodes(8)]
    yield EpisodeTrainer(model, rows, sft_objective, dataclasses.replace(SFT, processes=2), scratch)
    adapted = get_peft_model(text_world.small_model(renderer), LoraConfig(r=2, target_modules=["q_proj"]))
    prm, rows = new_prm(adapted), [prm_row(item, renderer) for item in labelled(8)]
    torch.nn.init.normal_(prm.get_base_model().score.modules_to_save["default"].weight)
    settings = PrmSettings(5e-3, 512, 0, steps=3)
    yield EpisodeTrainer(prm, rows, prm_objective(partial(relative, margin=0.1)), settings, scratch)
    won = [item.episode.won for item in labelled(8)]
    yield PromiseProgressTrainer(new_prm(text_world.small_model(renderer)), rows, won, settings, scratch)
    model = text_world.small_model(renderer)
    policy = Checkpoint(model, renderer.tokenizer, renderer, "")
    writer = RowWriter(policy, decoding=Constrained(policy, 8))
    rows = [writer.row(e, np.ones(e.length)) for e in text_world.episodes(8)]
    yield GradientTrainer(model, rows, GradientSettings(5e-3, 512, 0, steps=3), scratch, writer.choices)


def test_another_process_builds_the_same_trainer(renderer, tmp_path):
    for number, trainer in enumerate(trainers(renderer, tmp_path)):
        folder = tmp_path / str(number)
        folder.mkdir()
        launch._write_job(trainer, folder, torch.device("cpu"))
        again = launch._read_job(folder)
        assert type(again) is type(trainer)
        each = trainer.settings.accumulation // trainer.settings.processes
        assert again.settings == dataclasses.replace(trainer.settings, processes=1, accumulation=each)
        ours, theirs = (dict(t.model.named_parameters()) for t in (trainer, again))
        assert ours.keys() == theirs.keys()
        for name, weight in ours.items():
            assert torch.equal(weight, theirs[name]) and weight.requires_grad == theirs[name].requires_grad
        for row, other in zip(trainer.rows, again.rows, strict=True):
            assert np.array_equal(row.input_ids, other.input_ids) and list(row.branches) == list(other.branches)
            assert type(row.columns) is type(other.columns)
            for column in row.columns.names():
                assert np.array_equal(getattr(row.columns, column), getattr(other.columns, column))
        assert json.dumps(again.beside()) == json.dumps(trainer.beside())


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("DataError", DataError("no layers to shard")),
        ("MemoryError", torch.OutOfMemoryError("no layers to shard")),
    ],
)
def test_what_is_wrong_with_a_job_is_left_for_the_caller(tmp_path, monkeypatch, kind, error):
    def refused(folder):
        raise error

    monkeypatch.setattr(launch, "_read_job", refused)
    monkeypatch.setattr(launch, "_end_with_the_caller", lambda: None)
    with pytest.raises(SystemExit):
        launch.main(tmp_path)
    assert json.loads((tmp_path / launch._ERROR).read_text()) == {"kind": kind, "said": "no layers to shard"}


def test_an_objective_is_named_with_what_it_was_given():
    objective = prm_objective(partial(inverse, gamma=0.9))
    again = restored(json.loads(json.dumps(described(objective))))
    assert again.func is objective.func
    loss = again.keywords.pop("loss")
    assert (loss.func, loss.keywords) == (inverse, {"gamma": 0.9})
    assert restored(described(sft_objective)) is sft_objective


def test_accumulation_that_cannot_be_shared_is_refused():
    with pytest.raises(ValueError, match="accumulation: 2 is not a multiple of processes, 4"):
        dataclasses.replace(SFT, processes=4)


@pytest.mark.parametrize("kind", [DataError, FloatingPointError, MemoryError])
def test_what_a_process_says_of_the_data_is_raised_here(tmp_path, monkeypatch, kind):
    """The launcher alone is replaced: a process that leaves its error and ends."""
    error = json.dumps({"kind": kind.__name__, "said": "no rows to train on"})
    script = (
        f"import pathlib; pathlib.Path({str(tmp_path / 'error.json')!r}).write_text({error!r}); raise SystemExit(1)"
    )
    popen = subprocess.Popen
    monkeypatch.setattr(launch.subprocess, "Popen", lambda _, **how: popen([sys.executable, "-c", script], **how))
    with pytest.raises(kind, match="no rows to train on"):
        launch._run(tmp_path, 2)
    script = "raise SystemExit(3)"
    (tmp_path / "error.json").unlink()
    with pytest.raises(RuntimeError, match="exit status 3"):
        launch._run(tmp_path, 2)


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def compared(one, two):
    """The models and the curves of one process and of two."""
    torch.testing.assert_close(weights(one[0]), weights(two[0]), atol=1e-4, rtol=0)
    for here, there in zip(one[1]["curve"], two[1]["curve"], strict=True):
        assert here == pytest.approx(there, abs=1e-3)
    assert [one[1][name] for name in ("steps", "rows", "tokens")] == [
        two[1][name] for name in ("steps", "rows", "tokens")
    ]


def mixed_prms(renderer, scratch, adapter, mixing, **settings):
    """(names and weights of the start, the PRM after training, its metrics)."""
    policy = text_world.small_model(renderer)
    if adapter:
        policy = get_peft_model(policy, LoraConfig(r=2, target_modules=["q_proj"]))
    prm = new_prm(policy)
    start = {name: p.detach().clone() for name, p in prm.named_parameters()}
    how = PrmSettings(5e-3, 1024, 0, steps=3, accumulation=2, mixing=mixing, **settings)
    return start, *train_prm(labelled(), renderer, prm, how, scratch / str(mixing), held_out=others())


def others():
    """Labelled episodes of games that :func:`labelled` has none of."""
    return [dataclasses.replace(item, episode=dataclasses.replace(item.episode, game_id=f"other {n}"))
            for n, item in enumerate(labelled(8))]  # fmt: skip


@pytest.mark.parametrize("adapter", [False, True])
def test_trained_weights_are_mixed_with_those_of_the_start(renderer, tmp_path, adapter):
    torch.manual_seed(0)
    start, trained, by_trained = mixed_prms(renderer, tmp_path, adapter, 1.0)
    torch.manual_seed(0)
    again, mixed, by_mixed = mixed_prms(renderer, tmp_path, adapter, 0.25)
    assert all(torch.equal(start[name], weight) for name, weight in again.items()), "they start from the same weights"
    moved = 0
    for (name, far), (_, weight) in zip(trained.named_parameters(), mixed.named_parameters(), strict=True):
        torch.testing.assert_close(weight, 0.75 * start[name] + 0.25 * far, atol=1e-7, rtol=1e-6)
        moved += not torch.equal(far, start[name])
    assert moved > 1
    assert by_mixed["curve"] == by_trained["curve"], "training itself is the same"
    assert by_mixed["validation"] == validate_prm(mixed, renderer, others(), 1024) != by_trained["validation"]


@pytest.mark.parametrize("mixing", [0.0, 1.1, -0.5])
def test_a_share_that_is_none_is_refused(mixing):
    with pytest.raises(ValueError, match=rf"mixing: {mixing} is not in \(0, 1\]"):
        dataclasses.replace(SFT, mixing=mixing)


@pytest.mark.slow
def test_what_several_processes_trained_is_mixed_once(renderer, tmp_path):
    one = mixed_prms(renderer, tmp_path / "one", False, 0.5)
    two = mixed_prms(renderer, tmp_path / "two", False, 0.5, processes=2)
    compared(one[1:], two[1:])


@pytest.mark.slow
def test_two_processes_fine_tune_as_one(renderer, tmp_path):
    def tuned(processes):
        settings = dataclasses.replace(SFT, processes=processes)
        model = text_world.small_model(renderer)
        return train_sft(text_world.episodes(40), renderer, model, settings, tmp_path / str(processes))

    two = tuned(2)
    compared(tuned(1), two)
    assert two[1]["resumed_from"] == 0
    assert tuned(2)[1]["resumed_from"] == 3  # their states stay where the next run finds them
    assert not (tmp_path / "2/processes").exists()


@pytest.mark.slow
def test_two_processes_train_a_prm_as_one(renderer, tmp_path):
    adapted = get_peft_model(text_world.small_model(renderer), LoraConfig(r=2, target_modules=["q_proj"]))
    start = {name: p.detach().clone() for name, p in new_prm(adapted).named_parameters()}

    def trained(processes, loss):
        prm = new_prm(adapted)
        assert all(torch.equal(p, start[name]) for name, p in prm.named_parameters())
        settings = PrmSettings(5e-3, 1024, 0, steps=3, accumulation=2, processes=processes, loss=loss)
        return train_prm(labelled(), renderer, prm, settings, tmp_path / f"{loss}{processes}")

    for loss in ("bce", "promise_progress"):
        compared(trained(1, loss), trained(2, loss))
