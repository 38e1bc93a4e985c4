"""A campaign whose rollouts and evaluations ``transformers serve`` plays: the stages, from games to an evaluation."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from agentprm_core.datasets import read_table
from agentprm_core.evaluate import OUTCOMES
from agentprm_core.policy.models import load_checkpoint
from agentprm_core.policy.server import served_name
from agentprm_core.types import EPISODES
from tasks.frame import layout
from tasks.frame.params import PARAMS
from tasks.frame.profile import load_profile, overridden
from tests.flows.test_pipeline_smoke import ROOT, environment, project, run_stages, tiny_params
from tests.model.served_by_transformers import needs_transformers_serve, transformers_serve
from tests.model.test_chat_served import made

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
def served(policy: Path) -> Iterator[str]:
    """The address of a server that has ``policy`` under the name that a stage asks for."""
    name = served_name(load_checkpoint(policy).digest)
    policy.with_name(name).symlink_to(policy.name)
    with transformers_serve(name, policy.parent) as address:
        yield address


def of(folder: Path, constrained: object) -> None:
    params = overridden(tiny_params(), load_profile("chat_smoke", ROOT / "profiles"))
    params = overridden(params, CHANGES)
    params["model"] |= {"source": str(folder.parent / "published" / "model"), "constrained": constrained}
    (folder / PARAMS).write_text(yaml.safe_dump(params, sort_keys=False))


def outcomes(folder: Path) -> dict[str, tuple]:
    """What was decided, by game: won, actions, commands that are not there."""
    rows = read_table(folder / layout.outcomes(0), OUTCOMES).to_pylist()
    return {row["game_id"]: (row["won"], row["actions"], row["inadmissible"]) for row in rows}


def written(folder: Path) -> int:
    """Tokens of all replies. The sampler counts a reply as it is rendered again, a server what it wrote: two numbers
    where a reply is not of the form that is asked for."""
    return sum(row["generated"] for row in read_table(folder / layout.outcomes(0), OUTCOMES).to_pylist())


@pytest.mark.slow
@needs_transformers_serve
def test_a_server_plays_the_rollouts_and_the_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path / "published", 150, context=CONTEXT)
    folder = project(tmp_path / "served")
    of(folder, "served")
    run_stages(folder, ("games", "demos", "sft"))
    command = [sys.executable, "-m", "tasks.rollout", "--iteration", "1"]
    alone = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True)
    assert alone.returncode == 1 and "AGENTPRM_SERVERS" in alone.stderr.splitlines()[-1]

    with served(folder / layout.policy(0)) as server:
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
    assert written(here) == pytest.approx(written(folder), rel=0.1)
    assert any(inadmissible < actions for _, actions, inadmissible in outcomes(folder).values()), (
        "equal in more than noise"
    )
