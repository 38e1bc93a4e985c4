"""Several seeds of one comparison: Student's t by hand, and which rows are compared."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from agentprm_core.comparing import over_seeds
from benchmarks.over_seeds import correct_all, prms_of, rows_of, searches_of

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


@pytest.mark.parametrize("differences", [[0.1], [0.1, 0.1], [0.835 - 0.8, 0.8 - 0.765]])
def test_no_interval_without_a_spread(differences):
    found = over_seeds(differences)
    assert found["mean"] == pytest.approx(differences[0])
    assert found["ci_low"] is found["ci_high"] is found["p_value"] is None


def test_the_prm_is_ahead_where_the_others_are_behind():
    (row,) = rows_of([seed(("placebo", -0.1)), seed(("placebo", -0.3))])
    assert row["differences"] == [0.1, 0.3] and row["mean"] == pytest.approx(0.2)


def test_arms_and_splits_that_a_seed_lacks_are_left_out():
    seeds = [seed(("placebo", -0.1), ("rft", 0.0), split=-0.2), seed(("placebo", -0.3))]
    assert [(row["arm"], row["on"]) for row in rows_of(seeds)] == [("placebo", "both")]
    seeds = [seed(("placebo", -0.1), split=-0.2), seed(("placebo", -0.3), split=-0.4)]
    assert [(row["on"], row["mean"]) for row in rows_of(seeds)] == [("both", 0.2), ("unseen", pytest.approx(0.3))]


def searched(scorer: str, prior: float, success: float, unseen: float, search: str = "best_of_16") -> dict:
    """A row of benchmarks.placebo."""
    names = {"search": search, "prior": prior, "scorer": scorer}
    return {**names, "success": success, "by_split": {"unseen": unseen}, "v_prm": None}


def test_each_scorer_is_held_against_the_prm_with_the_priors_it_was_played_with():
    one = [searched("prm", 0.1, 0.8, 0.7), searched("prm", 0.0, 0.6, 0.6), searched("random", 0.0, 0.5, 0.6)]
    other = [searched("prm", 0.1, 0.9, 0.7), searched("prm", 0.0, 0.5, 0.6), searched("random", 0.0, 0.5, 0.4)]
    # with one scorer that learnt nothing there is no best of them
    rows = {(row["scorer"], row["prior"], row["on"]): row for row in searches_of([one, other], 0.1)}
    assert rows.keys() == {
        ("prm", 0.0, "all"),
        ("prm", 0.0, "unseen"),
        ("random", 0.0, "all"),
        ("random", 0.0, "unseen"),
    }
    assert rows["random", 0.0, "all"]["differences"] == pytest.approx([0.3, 0.4])
    assert rows["random", 0.0, "unseen"]["differences"] == pytest.approx([0.1, 0.3])
    assert rows["prm", 0.0, "all"]["mean"] == pytest.approx(0.3)


def test_the_best_that_learnt_nothing_is_chosen_by_seed_and_games():
    one = [searched("prm", 0.1, 0.8, 0.7), searched("random", 0.0, 0.5, 0.6), searched("constant", 0.1, 0.6, 0.4)]
    other = [searched("prm", 0.1, 0.9, 0.7), searched("random", 0.0, 0.5, 0.4), searched("constant", 0.1, 0.3, 0.3)]
    other += [searched("head", 0.0, 0.95, 0.9), searched("random", 0.1, 0.9, 0.9)]  # one learns, one is in one seed
    best = {row["on"]: row for row in searches_of([one, other], 0.1) if row["scorer"] == "nothing learnt"}
    assert best["all"]["success"] == [0.6, 0.5] and best["unseen"]["success"] == [0.6, 0.4]
    assert best["all"]["differences"] == pytest.approx([0.2, 0.4])


def test_a_search_that_a_seed_lacks_is_left_out():
    one = [
        searched("prm", 0.1, 0.8, 0.7),
        searched("random", 0.1, 0.5, 0.6),
        searched("random", 0.1, 0.4, 0.4, "beam_4x4"),
    ]
    assert {row["search"] for row in searches_of([one, one], 0.1)} == {"best_of_16"}
    assert list(searches_of([one, one[:1]], 0.1)) == []


def test_two_prms_are_held_against_each_other_and_against_the_best_that_learnt_nothing():
    """The likelihood is best at τ 0, in the second seed the most frequent sample."""
    untaught = [searched("untrained_likelihood", 0.1, 0.5, 0.5), searched("untrained_likelihood", 0.0, 0.6, 0.5)]
    constant = [searched("constant", 0.1, 0.7, 0.5)]
    new = [[searched("prm", 0.1, 0.8, 0.7), *untaught], [searched("prm", 0.1, 0.9, 0.7), *untaught, *constant]]
    old = [[searched("prm", 0.1, 0.7, 0.7)], [searched("prm", 0.1, 0.7, 0.6)]]
    rows = {row["on"]: row for row in prms_of(new, old)}
    assert rows["all"]["differences"] == pytest.approx([0.1, 0.2])
    assert rows["all"]["nothing"] == [0.6, 0.7]
    assert rows["all"]["over_nothing"]["mean"] == pytest.approx(0.2)
    assert rows["all"]["against_over_nothing"]["mean"] == pytest.approx(0.05)
    assert rows["unseen"]["differences"] == pytest.approx([0.0, 0.1])


def test_without_a_scorer_that_learnt_nothing_only_the_prms_are_compared():
    (row, _) = prms_of([[searched("prm", 0.1, 0.8, 0.7)]], [[searched("prm", 0.1, 0.7, 0.7)]])
    assert row["mean"] == pytest.approx(0.1) and "nothing" not in row


def test_every_p_of_a_table_is_corrected_for_their_number():
    """The smallest of three counts three times; a mean without a p does not count."""
    low, middle, high, none = ({"p_value": p} for p in (0.01, 0.03, 0.2, None))
    correct_all([{**none}, first := {**high, "over_nothing": low}, {**none, "against_over_nothing": middle}])
    assert first["p_holm"] == 0.2 and low["p_holm"] == pytest.approx(0.03) and middle["p_holm"] == 0.06


def said(*paths: Path | str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.over_seeds", *map(str, paths)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_from_files_to_the_table(tmp_path):
    paths = []
    for number, difference in enumerate((-0.05, -0.15)):
        paths.append(tmp_path / f"{number}.json")
        paths[-1].write_text("| a table |\n" + json.dumps({"rows": seed(("placebo", difference))}) + "\n")
    done = said(*paths)
    assert "| placebo | both | +5.0, +15.0 | +10.0 [-53.5, +73.5] | 0.3 | 0.3 |" in done.stdout
    assert json.loads(done.stdout.splitlines()[-1])["rows"][0]["mean"] == pytest.approx(0.1)
    paths[0].write_text("nothing\n")
    twice = said(paths[1], paths[1]).stderr
    assert twice.startswith(f"over_seeds: {paths[1]} is there twice: give the file of each seed once (")
    assert twice.count("\n") == 1
    refused = said(*paths)
    assert refused.returncode == 1 and "each file is the output of benchmarks.updates" in refused.stderr


def test_searches_of_several_seeds_have_a_table_of_their_own(tmp_path):
    paths = [tmp_path / "1.json", tmp_path / "2.json"]
    for path, random in zip(paths, (0.55, 0.45)):
        rows = [searched("prm", 0.1, 0.6, 0.6), searched("random", 0.1, random, 0.5)]
        path.write_text(json.dumps({"rows": rows}) + "\n")
    done = said(*paths, "--picture", tmp_path / "adds.png")
    assert (tmp_path / "adds.png").read_bytes().startswith(b"\x89PNG")
    assert (
        "| best_of_16 | random | 0.1 | all | 50.0 | 60.0 | +5.0, +15.0 | +10.0 [-53.5, +73.5] | 0.3 | 0.3 |"
        in done.stdout
    )
    against = said(*paths, "--against", *paths)  # τ 0.1: the PRM of each file against itself
    assert "| best_of_16 | 0.1 | all | 60.0, 60.0 | 60.0, 60.0 | +0.0 |  | 55.0, 45.0 | +10.0 [" in against.stdout
    assert "2 and 1 files" in said(*paths, "--against", paths[0]).stderr
    paths[0].write_text(json.dumps({"rows": seed(("placebo", 0.1))}) + "\n")
    assert "all be of benchmarks.updates, or all of benchmarks.placebo" in said(*paths).stderr
