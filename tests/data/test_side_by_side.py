"""Campaigns side by side, from the files that their stages leave."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from agentprm_core.errors import DataError
from agentprm_core.evaluate import outcomes_table
from agentprm_core.policy.sampler import Cost
from agentprm_core.types import Episode, Game, Turn
from benchmarks.side_by_side import all_seeds, over, over_table, picture, row_of, table

CONTROL = "best_of_4_by_untrained_likelihood"
SPLITS = ("seen", "unseen")
WON = {0: {"greedy": 2, "best_of_4": 5, CONTROL: 3}, 1: {"greedy": 5, "best_of_4": 6, CONTROL: 5}}
"""{iteration: {way of playing: the first so many of eight games a split}}."""


def campaign(folder: Path, seed: int = 1, won=WON, games: int = 16) -> Path:
    for iteration, ways in won.items():
        tables = [outcomes(iteration, split, way, won) for split in SPLITS for way, won in ways.items()]
        path = folder / f"data/evaluations/{iteration}/outcomes.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(pa.concat_tables(tables), path)
    params = {"env": {"world": "textcraft"}, "seed": seed, "evaluate": {"decoding": list(won[0])}}
    params["games"] = {"train": games}
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    return folder


def outcomes(iteration: int, split: str, way: str, wins: int) -> pa.Table:
    games = [Game(f"{n}", "textcraft", split, "depth_1", "craft a stick.", "{}") for n in range(8)]
    turns = (Turn("recipes", "inventory", ("inventory",), True, "key"),)
    spent = {"cost": Cost(generated=3), "world_steps": 1}
    episodes = [Episode(game.id, 0, 5, turns, n < wins, extra=spent) for n, game in enumerate(games)]
    named = {"iteration": iteration, "method": "agentprm", "split": split, "decoding": way, "seed": 1}
    return outcomes_table(episodes, games, **named, constrained=True, policy="digest")


def test_splits_count_together_and_the_gain_is_paired_by_game(tmp_path):
    row = row_of("crafting", campaign(tmp_path), None)
    assert (row["world"], row["games"], row["decoding"][0]) == ("textcraft", 16, "greedy")
    assert [row["policies"][i]["greedy"]["success"] for i in (0, 1)] == [4 / 16, 10 / 16]
    assert (row["gain"]["gained"], row["gain"]["lost"]) == (6, 0)
    assert row["gain"]["p_value"] == pytest.approx(2 / 2**6)
    assert row["adds"] == {"best_of_4": row["adds"]["best_of_4"]}
    assert row["adds"]["best_of_4"]["difference"] == pytest.approx(4 / 16)


def test_one_policy_has_gained_nothing_yet(tmp_path):
    shutil.rmtree(campaign(tmp_path) / "data/evaluations/0")
    row = row_of("crafting", tmp_path, None)
    assert row["gain"] is None
    head, _, printed = (line.split(" | ") for line in table([row]).splitlines())
    assert printed[head.index("gain, points")] == ""


def test_one_split_alone(tmp_path):
    assert row_of("crafting", campaign(tmp_path), "seen")["games"] == 8


def test_the_table_has_a_row_a_campaign(tmp_path):
    rows = [row_of("crafting", campaign(tmp_path / f"{seed}", seed), None) for seed in (1, 2)]
    printed = table(rows).splitlines()
    assert len(printed) == 4
    assert printed[2].startswith("| crafting | 1 | 16 | 25.0 % [10.2, 49.5] | 62.5 % [38.6, 81.5] | +37.5 [")
    assert "best_of_4 62.5 %" in printed[2] and "untrained" not in printed[2]


def test_the_picture(tmp_path):
    rows = [row_of(name, campaign(tmp_path / name), None) for name in ("crafting", "sums")]
    picture(rows, tmp_path / "climbs.png")
    assert (tmp_path / "climbs.png").read_bytes().startswith(b"\x89PNG")


def test_a_folder_without_evaluations_and_a_split_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match="crafting: no evaluations in"):
        row_of("crafting", tmp_path, None)
    with pytest.raises(DataError, match="--split: 'unsen' is not one of seen, unseen"):
        row_of("crafting", campaign(tmp_path), "unsen")


def test_campaigns_are_held_against_one_of_the_same_seed_policy_by_policy(tmp_path):
    less = {0: {"greedy": 2}, 1: {"greedy": 3}}
    campaigns = [("prm", campaign(tmp_path / f"prm-{seed}", seed)) for seed in (1, 2)]
    campaigns += [("likelihood", campaign(tmp_path / f"likelihood-{seed}", seed, less)) for seed in (1, 2)]
    rows = over(campaigns, "likelihood", None)
    assert [(row["name"], row["seed"], row["iteration"]) for row in rows] == [
        ("prm", seed, i) for seed in (1, 2) for i in (0, 1)
    ]
    assert [row["test"]["difference"] for row in rows] == [0, 4 / 16, 0, 4 / 16]
    assert (rows[1]["test"]["gained"], rows[1]["test"]["lost"]) == (4, 0)
    assert over(campaigns, "likelihood", "seen")[1]["test"]["games"] == 8
    printed = over_table(rows, "likelihood").splitlines()
    assert printed[0] == "| campaign | seed | π₀ over likelihood's, points | π₁ over likelihood's, points |"
    assert len(printed) == 6 and printed[3].startswith("| prm | 2 | +0.0 [+0.0, +0.0], p 1 | +25.0 [")
    assert (
        printed[4] == "| prm | mean over seeds | +0.0 (2 seeds) | +25.0 (2 seeds) |"
    )  # no interval: both seeds say the same


def test_several_seeds_are_a_sample_of_seeds_and_a_sample_of_games(tmp_path):
    tests = [{"games": 8, "gained": 4, "lost": 1, "difference": 3 / 8}]
    tests += [{"games": 8, "gained": 2, "lost": 0, "difference": 2 / 8}]
    rows = [{"name": "prm", "seed": n, "iteration": 1, "decoding": "greedy", "test": t} for n, t in enumerate(tests)]
    (found,) = all_seeds(rows)
    assert (found["seeds"], found["mean"]) == ([0, 1], 5 / 16)
    t_of_two_seeds = (5 / 16) / (1 / 16)  # mean / (standard deviation / √2), of one degree of freedom: Cauchy's law
    assert found["p_value"] == pytest.approx(1 - 2 / math.pi * math.atan(t_of_two_seeds))
    games = found["games"]
    assert (games["games"], games["gained"], games["lost"], games["difference"]) == (16, 6, 1, 5 / 16)
    assert games["p_value"] == pytest.approx(2 * 8 / 2**7)
    assert all_seeds(rows[:1]) == []


def test_what_cannot_be_held_against_each_other(tmp_path):
    one, other = campaign(tmp_path / "one"), campaign(tmp_path / "other", 2)
    with pytest.raises(DataError, match="--over: 'nobody' is not one of one, other"):
        over([("one", one), ("other", other)], "nobody", None)
    with pytest.raises(DataError, match="other: no campaign one has its seed, 2"):
        over([("one", one), ("other", other)], "one", None)
    more = campaign(tmp_path / "more", games=17)
    with pytest.raises(DataError, match="more and one with seed 1 play other games: games differ"):
        over([("one", one), ("more", more)], "one", None)
    sampled = campaign(tmp_path / "sampled", won={0: {"sample": 3}})
    with pytest.raises(DataError, match="sampled: greedy was not played, by which one is measured"):
        over([("one", one), ("sampled", sampled)], "sampled", None)
