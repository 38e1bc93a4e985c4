"""What is expected of games, rollouts, labels and pairs: the frames a gate looks at, and the expectations of each.

A suite turns a dataset into narrow frames (keys and derived numbers, no text) and says what must hold, so that a gate
costs little beside the data it guards. :mod:`tasks.frame.gates` runs them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
import polars as pl
import pyarrow as pa

from agentprm_core.worlds.base import Between, OneOf, WorldSpec
from tasks.frame.gates import Check, Expectation

TURN = ("game_id", "episode", "turn")
_MIXED = "some episodes are won and some are lost (raise rollout.temperature or rollout.games)"
_WON = "some episodes are won (raise search.beam.samples, search.beam.width or search.games)"
_TIES = "not all are ties (lower policy.margin, or raise policy.samples or policy.temperature)"


def games_suite(tables: Mapping[str, pa.Table], wanted: Mapping[str, int], spec: WorldSpec) -> list[Check]:
    """``tables`` and the number of games ``wanted``, both by split, of the world ``spec``. No game is in two splits."""
    games = pl.concat([pl.DataFrame(table).with_columns(part=pl.lit(part)) for part, table in tables.items()])
    attributes = [json.loads(text) for text in games["attributes"]]
    frame = games.select(
        "game_id",
        "part",
        "world",
        "kind",
        words=pl.col("goal").str.split(" ").list.len(),
        payload=pl.col("payload").hash().cast(pl.String),
        **{name: pl.Series(name, [of.get(name) for of in attributes]) for name in spec.attributes},
    )
    counts = games.group_by("part").len().sort("part")
    by_part = {part: 0 for part in wanted} | dict(counts.iter_rows())
    return [
        Check(
            "games",
            frame.to_arrow(),
            ("game_id",),
            (
                _unique("game_id", "every game has an id of its own"),
                _unique("payload", "no game twice, in one split or in two"),
                _in_set("kind", spec.kinds, f"the kinds of {spec.name}"),
                _between("words", 3, None, "a goal of words"),
                *(_attribute(name, expected) for name, expected in spec.attributes.items()),
            ),
        ),
        Check(
            "games by split",
            pa.table({"split": list(wanted), "missing": [wanted[part] - by_part[part] for part in wanted]}),
            ("split",),
            (_in_set("missing", [0], "as many games as params.yaml asks for"),),
        ),
    ]


def _attribute(name: str, expected: Between | OneOf) -> Expectation:
    if isinstance(expected, Between):
        return _between(name, expected.low, expected.high, expected.why)
    return _in_set(name, expected.values, expected.why)


def rollouts_suite(
    rollouts: pa.Table, *, policy: str, episodes_per_game: int, min_valid: float, searched: bool = False
) -> list[Check]:
    """Rollouts of the checkpoint with digest ``policy``, ``episodes_per_game`` a game, or what it ``searched``: of that
    the won episodes alone are of use."""
    name = "search" if searched else "rollout"
    turns = _turns(rollouts)
    episodes = turns.group_by("game_id", "episode", maintain_order=True).agg(
        won=pl.col("won").any().cast(pl.Float64), dones=pl.col("done").sum(), ended=pl.col("done").last()
    )
    games = episodes.group_by("game_id", maintain_order=True).agg(episodes=pl.len())
    return [
        Check(f"{name} turns", _narrow(turns, policy), TURN, _turn_expectations(policy, min_valid)),
        Check(
            f"{name} episodes",
            episodes.to_arrow(),
            ("game_id", "episode"),
            (
                _in_set("dones", [1], "an episode ends once"),
                _in_set("ended", [True], "an episode ends at its last turn"),
                _mean("won", 0, None if searched else 1, _WON if searched else _MIXED, strict=True),
            ),
        ),
        Check(
            f"{name} games",
            games.to_arrow(),
            ("game_id",),
            (_in_set("episodes", [episodes_per_game], "as many episodes of every game as params.yaml asks for"),),
        ),
    ]


def labels_suite(labels: pa.Table, turns: int, min_std: float) -> list[Check]:
    """Labels of ``turns`` turns: q in [0,1] and not all alike, one row a turn, split by game."""
    frame = pl.DataFrame(labels)
    sides = frame.group_by("game_id", maintain_order=True).agg(splits=pl.col("split").n_unique())
    keys = pa.table({"rows": [labels.num_rows - turns]})
    spread = pa.table({"std": [float(np.std(labels["q"].to_numpy()))]})
    return [
        Check(
            "labels",
            labels,
            TURN,
            (
                _compound(TURN, "one label a turn"),
                _between("q", 0, 1, "q is in [0, 1]"),
                _between("visits", 1, None, "every (s,a) was visited"),
                _between("variance", 0, 0.25 + 1e-6, "the variance of numbers in [0, 1]"),
                _in_set("split", ["train", "validation"], "a side of the split"),
            ),
        ),
        Check("label games", sides.to_arrow(), ("game_id",), (_in_set("splits", [1], "a game is on one side"),)),
        Check("label rows", keys, ("rows",), (_in_set("rows", [0], "as many labels as there are turns"),)),
        Check("label spread", spread, ("std",), (_mean("std", min_std, None, "q is not the same everywhere"),)),
    ]


def inverse_suite(rows: pa.Table) -> list[Check]:
    """Turns of experts and of learners: each once, each with a next action but the last, both classes as heavy."""
    table = pl.DataFrame(rows.drop_columns(["action", "next_reason"]))
    frame = table.select(
        "dataset", *TURN, "split", "weight", open=pl.col("next_action").is_null() != pl.col("terminal")
    )
    weights = table.group_by("split").agg(experts=pl.col("weight").filter("expert").sum() / pl.col("weight").sum())
    sides = table.group_by("game_id", maintain_order=True).agg(splits=pl.col("split").n_unique())
    return [
        Check(
            "inverse turns",
            frame.to_arrow(),
            ("dataset", *TURN),
            (
                _compound(("dataset", *TURN), "one row a turn"),
                _in_set("open", [False], "a next action at every turn but an episode's last"),
                _between("weight", 0, None, "every turn counts", strict=True),
                _in_set("split", ["train", "validation"], "a side of the split"),
            ),
        ),
        Check("inverse games", sides.to_arrow(), ("game_id",), (_in_set("splits", [1], "a game is on one side"),)),
        Check(
            "inverse sides",
            weights.sort("split").to_arrow(),
            ("split",),
            (_between("experts", 0, 1, "experts and learners on each side", strict=True),),
        ),
    ]


def pairs_suite(pairs: pa.Table, margin: float, most_ties: float, ties: float) -> list[Check]:
    """Pairs of actions: different ones, the chosen better by more than ``margin``; ``ties`` is the share dropped."""
    table = pl.DataFrame(pairs)
    frame = table.select(
        *TURN,
        same=pl.col("chosen") == pl.col("rejected"),
        gap=pl.col("chosen_score").cast(pl.Float64) - pl.col("rejected_score").cast(pl.Float64),
    )
    return [
        Check(
            "pairs",
            frame.to_arrow(),
            TURN,
            (
                _in_set("same", [False], "two different actions"),
                _between("gap", margin, None, "the chosen action scores higher by the margin", strict=True),
            ),
        ),
        Check("pair ties", pa.table({"ties": [ties]}), ("ties",), (_mean("ties", 0, most_ties, _TIES),)),
    ]


def _turns(rollouts: pa.Table) -> pl.DataFrame:
    columns = [*TURN, "reward", "won", "done", "valid", "policy", "state_key"]
    return pl.DataFrame(rollouts.select(columns))


def _narrow(turns: pl.DataFrame, policy: str) -> pa.Table:
    previous = pl.col("turn").shift(1).over("game_id", "episode")
    return turns.select(
        *TURN,
        "policy",
        step=(pl.col("turn") - previous).fill_null(pl.col("turn") + 1),
        early=pl.when(pl.col("done")).then(0.0).otherwise(pl.col("reward")),
        reward=pl.col("reward"),
        valid=pl.col("valid").cast(pl.Float64),
    ).to_arrow()


def _turn_expectations(policy: str, min_valid: float) -> tuple[Expectation, ...]:
    return (
        _compound(TURN, "one row a turn"),
        _in_set("step", [1], "turns run 0, 1, 2 … without a gap"),
        _in_set("early", [0.0], "no reward before the last turn"),
        _between("reward", 0, 1, "the reward is in [0, 1]"),
        _in_set("policy", [policy], "rollouts of the current policy"),
        _mean("valid", min_valid, 1, "enough of the actions are admissible"),
    )


def _unique(column: str, why: str) -> Expectation:
    return Expectation("ExpectColumnValuesToBeUnique", {"column": column}, why)


def _compound(columns: tuple[str, ...], why: str) -> Expectation:
    return Expectation("ExpectCompoundColumnsToBeUnique", {"column_list": list(columns)}, why)


def _in_set(column: str, values, why: str) -> Expectation:
    return Expectation("ExpectColumnValuesToBeInSet", {"column": column, "value_set": list(values)}, why)


def _between(column: str, low: float | None, high: float | None, why: str, strict: bool = False) -> Expectation:
    bounds = {"min_value": low, "max_value": high, "strict_min": strict}
    return Expectation("ExpectColumnValuesToBeBetween", {"column": column, **bounds}, why)


def _mean(column: str, low: float | None, high: float | None, why: str, strict: bool = False) -> Expectation:
    bounds = {"min_value": low, "max_value": high, "strict_min": strict, "strict_max": strict}
    return Expectation("ExpectColumnMeanToBeBetween", {"column": column, **bounds}, why)
