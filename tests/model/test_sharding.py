"""Shards: training, resuming and reading with them is what it is with whole weights, on one process and on two."""

import dataclasses
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import distributed

from agentprm_core.errors import DataError
from agentprm_core.improve.reference import Reference
from agentprm_core.improve.sft import SftSettings, train_sft
from agentprm_core.prm.score import score_rows
from agentprm_core.training.sharding import is_sharded, shard
from agentprm_core.training.trainer import fit
from tests.model import text_world
from tests.model.sharded import CASES, SFT, prm, trained

ROOT = Path(__file__).parents[2]


class Killed(Exception):
    pass


@pytest.fixture
def alone(monkeypatch, tmp_path):
    """A launcher's only process: the code of several, without their start."""
    monkeypatch.setenv("WORLD_SIZE", "1")
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.parametrize("name", ["checkpointing", "lora", "likelihood"])
def test_shards_train_to_the_weights_of_the_whole(alone, tmp_path, name):
    whole, sharded = (trained(name, tmp_path / str(n), 1, sharded=n) for n in (False, True))
    assert whole[0].keys() == sharded[0].keys()
    for key, weight in whole[0].items():
        torch.testing.assert_close(sharded[0][key], weight, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", ["sft", "lora"])
def test_a_killed_run_continues_to_the_same_weights(alone, tmp_path, name):
    def trainer(folder):
        model, rows, trainer_of, settings = CASES[name](text_world.renderer())
        shard(model, "cpu", "float32")
        return trainer_of(model, rows, dataclasses.replace(settings, save_every=1), folder)

    whole, killed = trainer(tmp_path / "whole"), trainer(tmp_path / "killed")
    fit(whole)
    objective, calls = killed.objective, []

    def dies(model, batch):
        calls.append(1)
        if len(calls) == 3:
            raise Killed
        return objective(model, batch)

    killed.objective = dies
    with pytest.raises(Killed):
        fit(killed)
    again = trainer(tmp_path / "killed")
    assert fit(again)["resumed_from"] == 2
    for one, other in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(one.full_tensor(), other.full_tensor())


def test_states_in_shards_are_not_resumed_from_with_the_whole(alone, tmp_path):
    settings = dataclasses.replace(SFT, save_every=1)
    model, rows, trainer_of, _ = CASES["sft"](text_world.renderer())
    shard(model, "cpu", "float32")
    fit(trainer_of(model, rows, settings, tmp_path))
    model, rows, trainer_of, _ = CASES["sft"](text_world.renderer())
    assert fit(trainer_of(model, rows, settings, tmp_path))["resumed_from"] == 0


def test_the_reference_and_scores_are_those_of_the_whole(alone):
    """Also after the weights have moved, and back again: what was gathered to read is not read later."""
    model, rows, _, _ = prm(text_world.renderer(), likelihood=0.3)
    torch.nn.init.normal_(model.score.weight)
    expected = score_rows(model, rows[:4], 512)
    shard(model, "cpu", "float32")
    reference = Reference(model)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(2)
    moved = score_rows(model, rows[:4], 512)
    with reference.in_place():
        found = score_rows(model, rows[:4], 512)
    for scores, others, again, then in zip(expected, moved, found, score_rows(model, rows[:4], 512), strict=True):
        assert again == pytest.approx(scores, abs=1e-6) and then == pytest.approx(others, abs=1e-6)
        assert abs(scores - others).max() > 0.01


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"processes": 1}, "sharding: fsdp2 is among processes, and there is 1"),
        ({"optimizer": "muon"}, "optimizer: muon needs whole matrices: set adamw"),
        ({"sharding": "zero"}, "sharding: 'zero' is not one of none, fsdp2"),
    ],
)
def test_what_shards_cannot_do_is_refused(changes, message):
    settings = dataclasses.replace(SFT, processes=2, accumulation=2, sharding="fsdp2")
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(settings, **changes)


def test_each_layer_is_gathered_on_its_own(alone):
    """What lies outside of them is left to the whole; a model without such layers would be gathered at once."""
    model = text_world.small_model(text_world.renderer())
    shard(model, "cpu", "float32")
    sharded = [module for module in model.modules() if is_sharded(module)]
    assert sharded == [model, *model.model.layers]
    with pytest.raises(DataError, match="a Linear has no layers that could be sharded one by one"):
        shard(torch.nn.Linear(4, 4), "cpu", "float32")


def test_muon_is_refused_for_a_sharded_model(alone, tmp_path):
    model, rows, trainer_of, settings = CASES["sft"](text_world.renderer(), optimizer="muon")
    shard(model, "cpu", "float32")
    with pytest.raises(ValueError, match="muon needs whole matrices"):
        trainer_of(model, rows, settings, tmp_path)


@pytest.mark.slow
@pytest.mark.xdist_group("processes")
def test_two_processes_with_shards_train_as_one_without(tmp_path):
    """Also that each holds its part alone: :func:`tests.model.sharded.check_parts`."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run([*command, "tests.model.sharded", str(tmp_path), *CASES], check=True, cwd=ROOT, env=environment)
    for name in CASES:
        one, metrics = trained(name, tmp_path / "one" / name, 1, sharded=False)
        two, shared = torch.load(tmp_path / f"{name}.pt", weights_only=False)
        near = 1e-2 if name == "bfloat16" else 1e-4
        for key, weight in one.items():
            torch.testing.assert_close(two[key], weight, atol=near, rtol=0)
        for here, there in zip(metrics["curve"], shared["curve"], strict=True):
            assert here == pytest.approx(there, abs=10 * near), name


@pytest.mark.slow
@pytest.mark.xdist_group("processes")
def test_sharded_processes_are_started_and_their_weights_put_back(tmp_path):
    renderer = text_world.renderer()

    def tuned(folder, **changes):
        settings = SftSettings(5e-3, 512, 0, steps=3, accumulation=2, save_every=1, **changes)
        model, metrics = train_sft(
            text_world.episodes(40), renderer, text_world.small_model(renderer), settings, tmp_path / folder
        )
        assert not is_sharded(model)
        return torch.cat([p.detach().flatten() for p in model.parameters()]), metrics["resumed_from"]

    expected, _ = tuned("one")
    for resumed_from in (0, 2):
        found, state = tuned("two", processes=2, sharding="fsdp2")
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)
        assert state == resumed_from
        shutil.rmtree(tmp_path / "two/checkpoint-3")  # as if it had been killed in the last step
