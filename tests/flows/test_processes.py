"""A stage that trains on two processes: the weights of one, and nothing left of it when it is killed."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file

from tasks.frame import layout
from tasks.frame.params import PARAMS
from tasks.frame.profile import overridden
from tasks.frame.stage import ENDED
from tests.flows.conftest import processes_in
from tests.flows.test_pipeline_smoke import command, environment, project, run_stages
from tests.waiting import until

pytestmark = pytest.mark.slow

SMALL = {
    "compute": {"pass_tokens": 1024, "save_every": 2},
    "games": {"train": 120},
    "demos": {"games": 60},
    "model": {"optimizer": "adamw"},
    "sft": {"learning_rate": 1e-3, "epochs": 1},
}


@pytest.fixture(scope="module")
def demonstrated(tmp_path_factory) -> Path:
    folder = project(tmp_path_factory.mktemp("processes") / "base")
    change(folder, SMALL)
    run_stages(folder, ("games", "demos"))
    return folder


def change(folder: Path, changes: dict) -> None:
    params = overridden(yaml.safe_load((folder / PARAMS).read_text()), changes)
    (folder / PARAMS).write_text(yaml.safe_dump(params, sort_keys=False))


def copied(demonstrated: Path, folder: Path, parallel: dict | None) -> Path:
    shutil.copytree(demonstrated, folder)
    change(folder, {"compute": {"parallel": parallel}})
    return folder


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / layout.policy(0) / "model.safetensors")


@pytest.mark.xdist_group("processes")
def test_two_processes_write_the_weights_of_one_also_after_a_kill(demonstrated, tmp_path):
    one = copied(demonstrated, tmp_path / "1", None)
    two = copied(demonstrated, tmp_path / "2", {"processes": 2, "sharding": "none"})
    run_stages(one, ("sft",))
    kill_after_a_state(two)
    assert not (two / layout.policy(0)).exists()
    run_stages(two, ("sft",))
    assert (two / ".scratch/sft" / ENDED).exists()
    expected, found = weights(one), weights(two)
    assert found.keys() == expected.keys()
    for name, weight in expected.items():
        torch.testing.assert_close(found[name], weight, atol=1e-4, rtol=0)


def kill_after_a_state(folder: Path) -> None:
    """SIGKILL to the stage alone, when the processes have left a state: they end by themselves."""
    running = subprocess.Popen(command("sft"), cwd=folder, env=environment(), stdout=subprocess.DEVNULL)
    states = (folder / ".scratch/sft").glob
    until(lambda: list(states("checkpoint-*/state.json")), 600, process=running, every=0.02)
    assert len(processes_in(folder)) >= 4  # the stage, the launcher and two processes
    running.send_signal(signal.SIGKILL)
    running.wait()
    until(lambda: not processes_in(folder))
