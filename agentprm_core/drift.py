"""How far a dataset of an iteration has moved from that of the iteration before. A warning, never an error: a policy
that learns plays other episodes.

Three distances, each from 0 to 1: of lengths and of labels the largest gap between the distribution functions
(Kolmogorov-Smirnov), of outcomes the difference of the shares won, of actions the total variation between the shares
of their first words. A distance counts above its limit, and above what chance gives samples of these sizes once in a
thousand times.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import polars as pl
import pyarrow as pa

from agentprm_core.expectations import Check, Expectation, mean_between

LIMITS = {"lengths": 0.35, "outcomes": 0.3, "actions": 0.2, "labels": 0.4}
"""Of the distance; a matter of judgement."""
_WHY = {
    "lengths": "episodes are about as long as the iteration before",
    "outcomes": "about as many episodes are won as the iteration before",
    "actions": "the policy does about the same kinds of things as the iteration before",
    "labels": "labels are distributed about as the iteration before",
}


def rollouts_drift(before: pa.Table, now: pa.Table) -> list[Check]:
    """Of two tables of EPISODES."""
    sides = [_episodes(table) for table in (before, now)]
    verbs = [_verbs(table) for table in (before, now)]
    sizes = [len(side) for side in sides]
    won = [float(np.mean(side["won"].to_numpy())) for side in sides]
    pooled = (won[0] * sizes[0] + won[1] * sizes[1]) / sum(sizes)
    chance = 3.29 * math.sqrt(pooled * (1 - pooled) * _inverse(*sizes))
    lengths = [side["length"].to_numpy() for side in sides]
    return _check(
        "rollout drift",
        {
            "lengths": (largest_gap(*lengths), _gap_by_chance(*sizes)),
            "outcomes": (abs(won[1] - won[0]), chance),
            "actions": (total_variation(*verbs), _variation_by_chance(*verbs)),
        },
    )


def labels_drift(before: pa.Table, now: pa.Table) -> list[Check]:
    """Of two tables with a column ``q``. None where they have none."""
    if "q" not in before.column_names or "q" not in now.column_names:
        return []
    sides = [table["q"].to_numpy() for table in (before, now)]
    return _check("label drift", {"labels": (largest_gap(*sides), _gap_by_chance(*map(len, sides)))})


def largest_gap(a: np.ndarray, b: np.ndarray) -> float:
    """sup |F_a − F_b| of two samples (the Kolmogorov-Smirnov statistic)."""
    values = np.union1d(a, b)
    shares = [np.searchsorted(np.sort(side), values, side="right") / len(side) for side in (a, b)]
    return float(np.abs(shares[0] - shares[1]).max())


def total_variation(a: Mapping[str, int], b: Mapping[str, int]) -> float:
    """½ Σ |p − q| of the shares of two counts."""
    totals = sum(a.values()), sum(b.values())
    return 0.5 * sum(abs(a.get(key, 0) / totals[0] - b.get(key, 0) / totals[1]) for key in {*a, *b})


def _check(name: str, found: Mapping[str, tuple[float, float]]) -> list[Check]:
    row = pa.table({key: [distance] for key, (distance, _) in found.items()})
    return [Check(name, row, (), tuple(_warning(key, chance) for key, (_, chance) in found.items()))]


def _warning(name: str, chance: float) -> Expectation:
    expected = mean_between(name, None, max(LIMITS[name], chance), _WHY[name])
    return Expectation(expected.type, expected.arguments, expected.why, severity="warning")


def _inverse(n: int, m: int) -> float:
    return 1 / n + 1 / m


def _gap_by_chance(n: int, m: int) -> float:
    """Two samples of one distribution exceed it once in a thousand times (Smirnov's limit)."""
    return math.sqrt(-0.5 * math.log(0.001 / 2) * _inverse(n, m))


def _variation_by_chance(a: Mapping[str, int], b: Mapping[str, int]) -> float:
    """Two samples of one distribution over k words exceed it rarely (Weissman et al. 2003, one side each)."""
    words = len({*a, *b})
    return sum(0.5 * math.sqrt(2 * (words * math.log(2) + math.log(1000)) / sum(side.values())) for side in (a, b))


def _episodes(table: pa.Table) -> pl.DataFrame:
    turns = pl.DataFrame(table.select(["game_id", "episode", "won"]))
    return turns.group_by("game_id", "episode").agg(won=pl.col("won").any().cast(pl.Float64), length=pl.len())


def _verbs(table: pa.Table) -> dict[str, int]:
    words = pl.DataFrame(table.select(["action"])).select(verb=pl.col("action").str.split(" ").list.first())
    return dict(words.group_by("verb").len().iter_rows())
