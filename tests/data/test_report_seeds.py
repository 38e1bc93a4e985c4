"""Campaigns of several seeds beside each other: what may be averaged, and how."""

import sys
from pathlib import Path

import pytest
import yaml

from agentprm_core.errors import DataError
from agentprm_core.evaluate import wilson
from tasks.commands import report
from tasks.commands.report_seeds import rows_by_seed, together
from tasks.frame import layout
from tasks.frame.params import PARAMS
from tasks.frame.stage import write_json
from tasks.report.overview import climb_over_seeds
from tests.data.project import raw_params


def row(iteration: int, won: int, decoding: str = "greedy") -> dict:
    low, high = wilson(won, 200)
    names = {"iteration": iteration, "split": "unseen", "decoding": decoding, "games": 200}
    return {**names, "success": won / 200, "ci_low": low, "ci_high": high}


def campaign(folder: Path, seed: int, *rows: dict, **overrides) -> Path:
    """A folder as a finished campaign leaves it, as far as this is read."""
    folder.mkdir(exist_ok=True)
    (folder / PARAMS).write_text(yaml.safe_dump(raw_params("smoke", seed=seed, **overrides), sort_keys=False))
    if rows:
        write_json(rows, folder / layout.ITERATIONS)
    return folder


def test_the_mean_is_over_seeds_and_each_seed_keeps_its_own_interval(tmp_path):
    """Shares 0.5, 0.6, 0.7: mean 0.6, standard error 0.1/√3, and t of 2 degrees of freedom is 4.3027 at 97.5 %."""
    folders = [campaign(tmp_path / str(n), n, row(0, 20), row(1, 80 + 20 * n)) for n in (1, 2, 3)]
    before, after = together(rows_by_seed(folders))
    assert (before["mean"], before["ci_low"]) == (pytest.approx(0.1), None)
    half = 4.302653 * 0.1 / 3**0.5
    assert (after["mean"], after["ci_low"], after["ci_high"]) == pytest.approx((0.6, 0.6 - half, 0.6 + half))
    assert after["by_seed"][1]["ci_low"] == wilson(100, 200)[0]
    table = climb_over_seeds([before, after])
    assert table["head"][4:] == ("seed 1", "seed 2", "seed 3", "mean", "low", "high")
    assert table["body"][1][3:] == [
        "200", "50.0% [43%, 57%]", "60.0% [53%, 67%]", "70.0% [63%, 76%]", "60.0%", "35.2%", "84.8%"
    ]  # fmt: skip
    assert table["body"][0][-3:] == ["10.0%", "", ""]


def test_rows_that_a_seed_lacks_are_left_out(tmp_path):
    one = campaign(tmp_path / "1", 1, row(0, 20), row(0, 30, "sample"))
    two = campaign(tmp_path / "2", 2, row(0, 40), row(1, 50))
    assert [(r["iteration"], r["decoding"], r["mean"]) for r in together(rows_by_seed([one, two]))] == [
        (0, "greedy", pytest.approx(0.15))
    ]


def test_campaigns_without_a_common_row(tmp_path):
    folders = [campaign(tmp_path / str(n), n, row(n, 20)) for n in (1, 2)]
    with pytest.raises(DataError, match="no policy, split and way of playing in common"):
        together(rows_by_seed(folders))


@pytest.mark.parametrize(
    ("seed", "overrides", "said"),
    [
        (2, {"sft": {"epochs": 7}, "rollout": {"games": 9}}, r"sft\.epochs is 7 there and \d+"),
        (1, {}, "its seed, 1, is that of another campaign"),
        (2, {}, r"data/metrics/iterations\.json: no such file: the stage compare has not run there"),
    ],
)
def test_campaigns_that_cannot_be_averaged(tmp_path, seed, overrides, said):
    one, two = campaign(tmp_path / "1", 1, row(0, 20)), campaign(tmp_path / "2", seed, **overrides)
    with pytest.raises(DataError, match=said) as refused:
        rows_by_seed([one, two])
    assert str(refused.value).startswith(str(two)) and "\n" not in str(refused.value)


def test_a_key_that_only_one_has_is_named(tmp_path):
    one, two = campaign(tmp_path / "1", 1, row(0, 20)), campaign(tmp_path / "2", 2, row(0, 20))
    raw = yaml.safe_load((two / PARAMS).read_text())
    (two / PARAMS).write_text(yaml.safe_dump({**raw, "more": 3}))
    with pytest.raises(DataError, match="more is 3 there and not in"):
        rows_by_seed([one, two])


def test_the_command_ends_with_a_line(tmp_path, monkeypatch):
    monkeypatch.chdir(campaign(tmp_path / "1", 1, row(0, 20)))
    monkeypatch.setattr(sys, "argv", ["report", "--seeds", "../1"])
    with pytest.raises(SystemExit, match=r"^report: ../1: its seed, 1, is"):
        report.main("agentprm report")
    (tmp_path / "3").mkdir()
    for given, said in (
        (["--seeds", "../2"], r"^report: \.\./2: no such folder$"),
        (["--campaign", "../2"], r"^report: \.\./2: no such folder$"),
        (["--seeds", "../3"], r"^report: \.\./3: no campaign: there is no params.yaml in it$"),
    ):
        monkeypatch.setattr(sys, "argv", ["report", *given])
        with pytest.raises(SystemExit, match=said):
            report.main("agentprm report")


def test_a_folder_without_a_campaign_says_what_to_give(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["report"])
    with pytest.raises(
        SystemExit, match=r"^report: no campaign in this folder: run it where .* or give --campaign DIR$"
    ):
        report.main("agentprm report")
    campaign(tmp_path / "1", 1)
    monkeypatch.setattr(sys, "argv", ["report", "--campaign", "1"])
    with pytest.raises(SystemExit, match=r"^report: 1/data/metrics/iterations.json: no such file: the stage compare"):
        report.main("agentprm report")
