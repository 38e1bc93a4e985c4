"""Several seeds of one comparison: Student's t by hand, and which rows are compared."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from agentprm_core.comparing import over_seeds
from benchmarks.over_seeds import rows_of

ROOT = Path(__file__).parents[2]


def seed(*arms: tuple[str, float], split: float | None = None) -> list[dict]:
    """The rows of one seed: arms with their difference to the PRM's."""
    rows: list[dict] = [{"arm": "prm", "v_prm": None}]
    for arm, difference in arms:
        by_split = {} if split is None else {"unseen": {"v_prm": {"difference": split}}}
        rows.append({"arm": arm, "v_prm": {"difference": difference}, "by_split": by_split})
    return rows


def test_mean_and_interval_are_those_of_students_t():
    """Differences 1, 2, 3: mean 2, standard error 1/√3, and t of 2 degrees of freedom is 4.3027 at 97.5 %."""
    found = over_seeds([1.0, 2.0, 3.0])
    assert found["mean"] == pytest.approx(2)
    assert (found["ci_low"], found["ci_high"]) == pytest.approx((2 - 4.302653 / 3**0.5, 2 + 4.302653 / 3**0.5))
    assert found["p_value"] == pytest.approx(0.0742, abs=1e-4)


@pytest.mark.parametrize("differences", [[0.1], [0.1, 0.1]])
def test_no_interval_without_a_spread(differences):
    found = over_seeds(differences)
    assert found["mean"] == pytest.approx(0.1)
    assert found["ci_low"] is found["ci_high"] is found["p_value"] is None


def test_the_prm_is_ahead_where_the_others_are_behind():
    (row,) = rows_of([seed(("placebo", -0.1)), seed(("placebo", -0.3))])
    assert row["differences"] == [0.1, 0.3] and row["mean"] == pytest.approx(0.2)


def test_arms_and_splits_that_a_seed_lacks_are_left_out():
    seeds = [seed(("placebo", -0.1), ("rft", 0.0), split=-0.2), seed(("placebo", -0.3))]
    assert [(row["arm"], row["on"]) for row in rows_of(seeds)] == [("placebo", "both")]
    seeds = [seed(("placebo", -0.1), split=-0.2), seed(("placebo", -0.3), split=-0.4)]
    assert [(row["on"], row["mean"]) for row in rows_of(seeds)] == [("both", 0.2), ("unseen", pytest.approx(0.3))]


def said(*paths: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.over_seeds", *map(str, paths)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_from_files_to_the_table(tmp_path):
    paths = []
    for number, difference in enumerate((-0.05, -0.15)):
        paths.append(tmp_path / f"{number}.json")
        paths[-1].write_text("| a table |\n" + json.dumps({"rows": seed(("placebo", difference))}) + "\n")
    done = said(*paths)
    assert "| placebo | both | +5.0, +15.0 | +10.0 [-53.5, +73.5] | 0.3 |" in done.stdout
    assert json.loads(done.stdout.splitlines()[-1])["rows"][0]["mean"] == pytest.approx(0.1)
    paths[0].write_text("nothing\n")
    refused = said(*paths)
    assert refused.returncode == 1 and "each file is the output of benchmarks.updates" in refused.stderr
