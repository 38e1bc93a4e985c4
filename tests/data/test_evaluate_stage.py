"""The stage ``evaluate``: what it has measured is kept over a kill, and only what decides it decides that."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from agentprm_core.datasets import games_from_table, read_table
from agentprm_core.policy.models import load_checkpoint
from agentprm_core.policy.runner import cache_bytes
from agentprm_core.types import GAMES
from tasks import evaluate
from tasks.frame.params import load_params
from tasks.frame.stage import StageError
from tasks.playing import DecodingConfig

WAY = DecodingConfig("sample", 1.0, True, n=2, width=2, samples=2, world="alfworld", max_turns=3, max_action_tokens=8,
          slots=4, context=512)  # fmt: skip


@pytest.fixture
def stage(tmp_path):
    compute = SimpleNamespace(device="cpu", threads=1)
    params = SimpleNamespace(seed=1, method="agentprm", compute=compute)
    clock = SimpleNamespace(lap=lambda name: nullcontext())
    return SimpleNamespace(params=params, clock=clock, iteration=1, scratch=tmp_path / "scratch", name="evaluate@1")


@pytest.fixture
def measured(stage, checkpoints, monkeypatch):
    """``measured(way)`` gives outcomes; ``measured.played`` are the ways that were played for them."""
    policy, prm = load_checkpoint(checkpoints / "policy"), load_checkpoint(checkpoints / "prm", kind="prm")
    games = games_from_table(read_table(checkpoints / "unseen.parquet", GAMES))
    playing = evaluate.play_games

    def noted(policy, prm, games, way, *arguments):
        outcomes.played.append(way)
        return playing(policy, prm, games, way, *arguments)

    def outcomes(way, split="unseen", policy=policy):
        return evaluate._outcomes(stage, split, games, way, policy, prm, None)

    outcomes.played, outcomes.policy = [], policy
    monkeypatch.setattr(evaluate, "play_games", noted)
    return outcomes


def test_what_is_measured_is_not_played_again(stage, measured):
    first = measured(WAY)
    assert first["split"].to_pylist() == ["unseen"] * 2
    assert first["score"].null_count == 0
    assert measured(WAY) == first
    assert measured.played == [WAY]
    (kept,) = (stage.scratch / "outcomes").iterdir()
    assert kept.name.startswith("unseen-sample-")


def test_all_that_decides_outcomes_asks_for_others(stage, measured):
    measured(WAY)
    measured(WAY, split="seen")
    measured(replace(WAY, method="greedy"))
    measured(replace(WAY, prior=0.5))
    measured(replace(WAY, slots=1))  # what is read, and counted, depends on what is played beside it
    measured(WAY, policy=replace(measured.policy, digest="another"))
    stage.params.compute.threads = 2
    measured(WAY)
    stage.params.seed = 2
    measured(WAY)
    stage.params.method = "rft"
    measured(WAY)
    assert len(measured.played) == 9


def test_a_cache_too_small_for_the_beam_is_named(checkpoints):
    policy = load_checkpoint(checkpoints / "policy")
    of_one = cache_bytes(policy.model, 512) / 2**20
    params = load_params(Path(__file__).parents[2] / "params.yaml")
    params = params.model_copy(update={"compute": params.compute.model_copy(update={"cache_mb": 2 * 3.5 * of_one})})
    stage = SimpleNamespace(params=params)
    assert evaluate._way(stage, policy, "best_of_n").slots == 3
    assert evaluate._way(stage, policy, "best_of_n").prior == params.evaluate.prior > 0
    with pytest.raises(StageError, match=r"compute.cache_mb is .*: 2 caches of 3 slots of 512 tokens .*beam.width, 4:"):
        evaluate._way(stage, policy, "beam")
