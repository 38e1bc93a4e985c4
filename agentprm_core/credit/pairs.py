"""Pairs of actions at one state whose Q̂ differ: the data of the relative (Bradley-Terry) loss (paper A, variants)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from agentprm_core.credit.turns import Turns, read_turns, shards
from agentprm_core.datasets import read_table
from agentprm_core.errors import DataError
from agentprm_core.types import LABELS, PAIRS

_WHERE = ("game_id", "episode", "turn")


def action_pairs(
    state_N: np.ndarray,
    state_action_N: np.ndarray,
    q_N: np.ndarray,
    visits_N: np.ndarray,
    *,
    margin: float,
    min_visits: int,
) -> tuple[pl.DataFrame, dict[str, int]]:
    """All pairs of different actions at one state with Q̂(chosen) − Q̂(rejected) > ``margin``.

    Rows (``chosen``, ``rejected``: the first of the N rows that does the action there; ``at``: the first row in that
    state; ``chosen_score``, ``rejected_score``), sorted by row. Counts: ``states`` with at least two actions of
    ``min_visits`` visits, ``pairs``, and ``ties``, the pairs that differ by no more than the margin.

    Raises:
        ValueError: a negative margin, or ``min_visits`` below 1.
    """
    if margin < 0 or min_visits < 1:
        raise ValueError(f"pairs: margin {margin} must not be negative, min_visits {min_visits} at least 1")
    rows = pl.DataFrame({"state": state_N, "key": state_action_N, "q": q_N, "visits": visits_N}).with_row_index("row")
    tried = (
        rows.with_columns(at=pl.col("row").min().over("state"))
        .unique("key", keep="first", maintain_order=True)
        .filter(pl.col("visits") >= min_visits)
        .filter(pl.len().over("state") > 1)
    )
    both = tried.join(tried, on="state", suffix="_other", maintain_order="left_right")
    pairs = both.filter(pl.col("q") - pl.col("q_other") > margin).select(
        "at",
        chosen="row",
        rejected="row_other",
        chosen_score="q",
        rejected_score="q_other",
    )
    unordered = both.filter(pl.col("row") < pl.col("row_other")).height
    counts = {"states": tried["state"].n_unique(), "pairs": len(pairs), "ties": unordered - len(pairs)}
    return pairs.sort("at", "chosen", "rejected"), counts


def relative_pairs(
    rollouts: Path | Sequence[Path], labels: Path, *, key: str, margin: float = 0.03, min_visits: int = 1
) -> tuple[pa.Table, dict[str, int]]:
    """Rows of PAIRS from a dataset of episodes and its Monte Carlo labels, and the counts of :func:`action_pairs`.

    ``key`` is the one the labels were made with. Each row stands at the first turn in its state; with ``state`` as the
    key the two actions may have been done after other histories than that turn's. States are not merged across the
    labels' split, so a pair's side is its game's. A Q̂ of one visit is one coin: ``min_visits`` asks for more.

    Raises:
        DataError: labels of other turns than the rollouts'.
        ValueError: as :func:`action_pairs`.
    """
    turns = read_turns(rollouts)
    given = read_table(labels, LABELS)
    _same_turns(turns, given, labels)
    side = pl.from_arrow(given["split"]).eq("validation").to_numpy().astype(np.uint64)
    q, visits = given["q"].to_numpy().astype(np.float64), given["visits"].to_numpy()
    states, state_actions = turns.states(key) + side, turns.state_actions(key) + side
    pairs, counts = action_pairs(states, state_actions, q, visits, margin=margin, min_visits=min_visits)
    at = pairs["at"].to_numpy()
    rows = {
        "game_id": pa.array(turns.games).take(pa.array(turns.game_N[at])),
        "episode": turns.episode_N[at],
        "turn": turns.turn_N[at],
        "chosen": _actions(rollouts, turns, pairs["chosen"].to_numpy()),
        "rejected": _actions(rollouts, turns, pairs["rejected"].to_numpy()),
        "chosen_score": pairs["chosen_score"].to_numpy(),
        "rejected_score": pairs["rejected_score"].to_numpy(),
    }
    return pa.table(rows, schema=PAIRS), counts


def _same_turns(turns: Turns, labels: pa.Table, path: Path) -> None:
    games = pa.array(turns.games).take(pa.array(turns.game_N))
    same = len(labels) == len(games) and (
        pa.chunked_array([games]).equals(labels["game_id"])
        and np.array_equal(turns.episode_N, labels["episode"].to_numpy())
        and np.array_equal(turns.turn_N, labels["turn"].to_numpy())
    )
    if not same:
        raise DataError(f"{path}: {len(labels)} labels that are not those of these {len(games)} turns")


def _actions(rollouts: Path | Sequence[Path], turns: Turns, row_P: np.ndarray) -> pa.Array:
    """The text of the action of each of these rows of ``turns``; only those texts are read into memory."""
    wanted = pl.DataFrame(
        {
            "game_id": np.array(turns.games, dtype=object)[turns.game_N[row_P]].tolist(),
            "episode": turns.episode_N[row_P],
            "turn": turns.turn_N[row_P],
        },
        schema={"game_id": pl.String, "episode": pl.Int32, "turn": pl.Int32},
    )
    texts = pl.scan_parquet(shards(rollouts)).select(*_WHERE, "action")
    found = texts.join(wanted.unique().lazy(), on=_WHERE, how="semi").collect(engine="streaming")
    return wanted.join(found, on=_WHERE, how="left", maintain_order="left")["action"].to_arrow().cast(pa.string())
