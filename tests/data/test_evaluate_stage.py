"""The stage ``evaluate``: what it has measured is kept over a kill, and only what decides it decides that."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from agentprm_core.datasets import games_from_table, read_table
from agentprm_core.policy.models import load_checkpoint
from agentprm_core.search import cells
from agentprm_core.search.decoding_config import decoding
from agentprm_core.search.playing import PlaySettings, Search
from agentprm_core.types import GAMES
from tasks import evaluate
from tasks.frame.given import play_settings, searches
from tasks.frame.params import load_params

PLAY = PlaySettings(
    world="alfworld", max_turns=3, context=512, max_action_tokens=8, constrained=True, slots=4, cache_mb=256
)
SEARCH = Search(decoding("sample"), PLAY, 1.0)


@pytest.fixture
def stage(tmp_path):
    compute = SimpleNamespace(device="cpu", threads=1)
    env = SimpleNamespace(world="alfworld")
    params = SimpleNamespace(seed=1, label="online_dpo/monte_carlo", compute=compute, env=env)
    clock = SimpleNamespace(book=lambda name, seconds: None)
    return SimpleNamespace(params=params, clock=clock, iteration=1, scratch=tmp_path / "scratch", name="evaluate@1")


@pytest.fixture
def measured(stage, checkpoints, monkeypatch):
    """``measured(search)`` gives outcomes; ``measured.played`` are the searches that were played for them."""
    policy, prm = load_checkpoint(checkpoints / "policy"), load_checkpoint(checkpoints / "prm", kind="prm")
    games = games_from_table(read_table(checkpoints / "unseen.parquet", GAMES))
    playing = cells.play_games

    def noted(policy, prm, games, search, *arguments):
        outcomes.played.append(search)
        return playing(policy, prm, games, search, *arguments)

    def outcomes(search, split="unseen", policy=policy):
        return pa.concat_tables(evaluate._measured(stage, [cells.Cell(split, games, search)], policy, prm, None))

    outcomes.played, outcomes.policy = [], policy
    monkeypatch.setattr(cells, "play_games", noted)
    return outcomes


def test_what_is_measured_is_not_played_again(stage, measured):
    first = measured(SEARCH)
    assert first["split"].to_pylist() == ["unseen"] * 2
    assert set(first["method"].to_pylist()) == {"online_dpo/monte_carlo"}
    assert first["score"].null_count == 0
    assert measured(SEARCH) == first
    assert measured.played == [SEARCH]
    (kept,) = (stage.scratch / "outcomes").iterdir()
    assert kept.name.startswith("unseen-sample-")


def test_all_that_decides_outcomes_asks_for_others(stage, measured):
    measured(SEARCH)
    measured(SEARCH, split="seen")
    measured(replace(SEARCH, way=decoding("greedy")))
    measured(replace(SEARCH, way=decoding("sample@0.5")))
    measured(replace(SEARCH, temperature=0.7))
    measured(replace(SEARCH, prior=0.5))
    # what is read, and counted, depends on what is played beside it
    measured(replace(SEARCH, settings=replace(PLAY, slots=1)))
    measured(SEARCH, policy=replace(measured.policy, digest="another"))
    stage.params.compute.threads = 2
    measured(SEARCH)
    stage.params.seed = 2
    measured(SEARCH)
    stage.params.label = "rft/monte_carlo"
    measured(SEARCH)
    assert len(measured.played) == 11
    measured(replace(SEARCH, settings=replace(PLAY, cache_mb=300)))
    assert len(measured.played) == 11, "more memory than the slots need changes nothing"


def test_policies_are_measured_without_the_memory_that_they_were_trained_with():
    params = load_params(Path(__file__).parents[2] / "params.yaml")
    for trained, measured in [("alfworld-remembering", "alfworld"), ("alfworld-textworld", "alfworld-textworld")]:
        params = replace(params, env=replace(params.env, world=trained))
        assert {search.settings.world for search in searches(params)} == {measured}
        assert play_settings(params).world == trained


def test_the_control_of_what_a_prm_adds_is_played_without_the_prior():
    params = load_params(Path(__file__).parents[2] / "params.yaml")
    priors = {search.name: search.prior for search in searches(params)}
    assert priors["best_of_16"] == params.critic.prior > 0
    assert priors["best_of_16_by_untrained_likelihood"] == 0
