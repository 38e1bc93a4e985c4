"""``recipes.distributed_sft`` under a launcher: two processes, one checkpoint, and it has learnt."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from agentprm_core.datasets import episodes_to_table, write_table
from agentprm_core.improve.sft import SftSettings, train_sft
from agentprm_core.policy.models import checkpoint_digest, load_policy, save_policy
from tests.model import text_world

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_two_processes_save_one_policy_that_has_learnt(tmp_path):
    renderer = text_world.renderer()
    save_policy(text_world.small_model(renderer), renderer.tokenizer, tmp_path / "start")
    demos = text_world.episodes(64, skill=1.0)
    write_table(episodes_to_table(demos, iteration=0, method="expert", policy=""), tmp_path / "demos.parquet")
    given = {"policy": tmp_path / "start", "demos": tmp_path / "demos.parquet", "out": tmp_path / "out"}
    given |= {"scratch": tmp_path / "scratch", "learning-rate": 5e-3, "epochs": 4, "batch-tokens": 512}
    words = [word for name, value in given.items() for word in (f"--{name}", str(value))]
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "recipes.distributed_sft"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    ran = subprocess.run(
        [sys.executable, *launch, *words], cwd=ROOT, env=environment, timeout=240, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    digest = checkpoint_digest(tmp_path / "out")
    (steps,) = re.findall(rf"out: {digest}, (\d+) steps, loss", ran.stdout)  # one process wrote and said so
    # one pass more at no speed: what each policy's loss is now
    still = SftSettings(1e-9, 4096, 0, steps=1)
    begun, ended = (load_policy(tmp_path / name) for name in ("start", "out"))
    first, last = (
        train_sft(demos, policy.renderer, policy.model, still, tmp_path / f"loss-{number}")[1]
        for number, policy in enumerate((begun, ended))
    )
    assert last["loss"] < 0.5 * first["loss"]
    tokens = sum(len(renderer.episode(demo.turns).input_ids) for demo in demos)
    assert int(steps) < 0.75 * 4 * tokens / 512  # each step took a batch of both
