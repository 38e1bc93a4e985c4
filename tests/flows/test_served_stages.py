"""A campaign whose rollouts and evaluations ``transformers serve`` plays: the stages, from games to an evaluation."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from transformers.utils.import_utils import is_serve_available

from agentprm_core.datasets import read_table
from agentprm_core.evaluate import OUTCOMES
from agentprm_core.policy.models import load_checkpoint
from agentprm_core.policy.server import served_name
from agentprm_core.types import EPISODES
from tasks.frame import layout
from tasks.frame.params import PARAMS
from tasks.frame.profile import load_profile, overridden
from tests.flows.test_pipeline_smoke import ROOT, environment, project, run_stages, tiny_params
from tests.flows.test_ui import free_port
from tests.model.test_chat_served import made
from tests.model.test_server import _wait_for

CONTEXT = 12288
"""Tokens: the admissible commands are in every prompt, and some rooms have hundreds."""
CHANGES = {
    "compute": {"precision": "float32"},  # so that two engines write the same words
    "env": {"max_turns": 8},
    "games": {"train": 24, "seen": 6, "unseen": 6},
    "demos": {"games": 24},
    "model": {"lora": None, "constrained": "served", "context": CONTEXT},
    "sft": {"epochs": 30.0, "batch_tokens": 4096},  # until it knows the games by heart: the gate asks for wins
    "rollout": {"games": 12, "temperature": 0.7},
    "evaluate": {"decoding": ["greedy"]},
}
"""Over the profile chat_smoke."""


@contextmanager
def transformers_serve(policy: Path) -> Iterator[str]:
    """The address of a server that has ``policy`` under the name that a stage asks for."""
    port, name = free_port(), served_name(load_checkpoint(policy).digest)
    policy.with_name(name).symlink_to(policy.name)
    command = [sys.executable, "-m", "transformers.cli.transformers", "serve", name, "--host", "127.0.0.1"]
    running = [*command, "--port", str(port), "--device", "cpu"]
    server = subprocess.Popen(running, cwd=policy.parent, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    try:
        _wait_for(f"http://127.0.0.1:{port}/health", server)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        server.wait()


def of(folder: Path, constrained: object) -> None:
    params = overridden(tiny_params(), load_profile("chat_smoke", ROOT / "profiles"))
    params = overridden(params, CHANGES)
    params["model"] |= {"source": str(folder.parent / "published" / "model"), "constrained": constrained}
    (folder / PARAMS).write_text(yaml.safe_dump(params, sort_keys=False))


def outcomes(folder: Path) -> dict[str, tuple]:
    """What was decided, by game: won, actions, commands that are not there, and tokens where all commands were there.

    The sampler counts the tokens of a reply as it is rendered again, a server those that it wrote: two numbers where a
    reply is not of the form that is asked for.
    """
    rows = read_table(folder / layout.outcomes(0), OUTCOMES).to_pylist()
    written = {row["game_id"]: row["generated"] if row["inadmissible"] == 0 else None for row in rows}
    return {row["game_id"]: (row["won"], row["actions"], row["inadmissible"], written[row["game_id"]]) for row in rows}


@pytest.mark.slow
@pytest.mark.skipif(not is_serve_available(), reason="transformers serve is not installed: pip install openai")
def test_a_server_plays_the_rollouts_and_the_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path / "published", 150, context=CONTEXT)
    folder = project(tmp_path / "served")
    of(folder, "served")
    run_stages(folder, ("games", "demos", "sft"))
    command = [sys.executable, "-m", "tasks.rollout", "--iteration", "1"]
    alone = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True)
    assert alone.returncode == 1 and "AGENTPRM_SERVERS" in alone.stderr.splitlines()[-1]

    with transformers_serve(folder / layout.policy(0)) as server:
        monkeypatch.setenv("AGENTPRM_SERVERS", server)
        run_stages(folder, ("rollout 1", "label 1", "prm 1", "evaluate 0"))
    episodes = read_table(folder / layout.rollouts(1) / "episodes.parquet", EPISODES)
    assert len(set(episodes["game_id"].to_pylist())) == CHANGES["rollout"]["games"]

    monkeypatch.delenv("AGENTPRM_SERVERS")
    here = tmp_path / "here"
    shutil.copytree(folder, here)
    of(here, False)
    run_stages(here, ("evaluate 0",))
    assert outcomes(here) == outcomes(folder)
    assert any(won for won, *_ in outcomes(folder).values())
