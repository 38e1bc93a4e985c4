"""PRMs of single worlds, trained and played in all of them, from what a campaign of several worlds left."""

from __future__ import annotations

import subprocess
import sys

import pytest
import yaml

from benchmarks.transfer import LIKELIHOOD, agreement
from tasks.frame.params import PARAMS
from tasks.frame.profile import load_profile, overridden
from tests.flows.test_pipeline_smoke import ROOT, benchmark, environment, project, run_stages, tiny_params

SMALL = {
    "games": {"train": 120, "seen": 10, "unseen": 10},
    "demos": {"games": 60},
    "rollout": {"games": 40, "branch": {"validation_states": 20, "random_states": 0}},
}
WORLDS = {"alfworld", "arithmetic", "babyai", "textcraft", "webshop"}


@pytest.mark.slow
def test_every_prm_is_measured_and_played_in_every_world(tmp_path):
    params = overridden(overridden(tiny_params(), load_profile("all_worlds", ROOT / "profiles")), SMALL)
    folder = project(tmp_path / "project")
    (folder / PARAMS).write_text(yaml.safe_dump(params))
    run_stages(folder, ("games", "demos", "sft", "rollout 1", "label 1"))
    found = benchmark("transfer", "--campaign", str(folder), "--limit", "1", "--search", "best_of_2")
    assert found["agreement"] is None or -1 <= found["agreement"] <= 1
    prms = {f"PRM of {world}" for world in WORLDS} | {"PRM of all", "PRM of a share of all", "placebo of all"}
    ranked = {(row["scorer"], row["world"]) for row in found["ranking"]}
    assert ranked == {(name, world) for name in prms | {"untrained likelihood"} for world in WORLDS}
    played = {(row["scorer"], row["world"]): row["games"] for row in found["success"]}
    assert played == {(n, world): 1 for n in prms | {"untrained likelihood", "constant"} for world in WORLDS}


def test_agreement_is_of_ranks_over_the_likelihoods():
    """World b's likelihood is better in both, so only the differences agree; a cell without a pair is left out."""
    cells = {("A", "a"): (0.6, 0.5), ("A", "b"): (0.9, 0.7), ("B", "a"): (0.7, 0.9), ("B", "b"): (None, 0.1)}
    cells |= {(LIKELIHOOD, "a"): (0.5, 0.4), (LIKELIHOOD, "b"): (0.95, 0.8)}
    ranking = [{"scorer": s, "world": w, "ranking": {"accuracy": ranks}} for (s, w), (ranks, _) in cells.items()]
    success = [{"scorer": s, "world": w, "success": wins} for (s, w), (_, wins) in cells.items()]
    assert agreement(ranking, success) == pytest.approx(1.0)
    success[0]["success"] = 0.1  # below A in b, which ranks worse
    assert agreement(ranking, success) == pytest.approx(0.5)


def test_a_campaign_that_is_not_there_is_named(tmp_path):
    asked = [sys.executable, "-m", "benchmarks.transfer", "--campaign", str(tmp_path)]
    done = subprocess.run(asked, cwd=ROOT, env=environment(), capture_output=True, text=True)
    assert done.returncode == 1
    assert f"transfer: --campaign: {tmp_path}/params.yaml is not there" in done.stderr
