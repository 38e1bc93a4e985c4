"""InversePRM: what separates an expert's turns from the learner's, without any outcome reward (paper A, InversePRM).

With the implicit reward r(s,a) = Q(s,a) − γ E_{a'~π}[Q(s',a')], the PRM raises r on expert turns D⁺ and lowers it on
learner turns D⁻. Nothing here reads the columns ``reward`` and ``done``; an episode ends where its rows end, or where
it is cut (:mod:`agentprm_core.credit.cutting`). Turns that were replayed to where an episode starts were nobody's
decision and are in neither class.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np
import polars as pl
import pyarrow as pa
import torch
import torch.nn.functional as F

from agentprm_core.credit.cutting import DEMONSTRATIONS, Cut
from agentprm_core.credit.split import validation_games
from agentprm_core.credit.turns import shards
from agentprm_core.datasets import REPLAYED
from agentprm_core.errors import DataError

INVERSE = pa.schema(
    [
        ("dataset", pa.int32()),
        ("game_id", pa.string()),
        ("episode", pa.int32()),
        ("turn", pa.int32()),
        ("action", pa.string()),
        ("next_action", pa.string()),
        ("next_reason", pa.string()),
        ("terminal", pa.bool_()),
        ("expert", pa.bool_()),
        ("weight", pa.float32()),
        ("split", pa.string()),
    ]
)
"""One row a decided turn. ``dataset`` 0 is the demonstrations, 1 … the learner's rollouts in the order given;
``next_action`` with its ``next_reason`` is a' at the state of the next turn, null where ``terminal``; ``split`` is
``train`` or ``validation``, decided by game."""

_WHERE = ("game_id", "episode", "turn")
_NEXT = ("next_action", "next_reason")

RESAMPLED = pa.schema(
    [(name, INVERSE.field(name).type) for name in _WHERE] + [("action", pa.string()), ("reason", pa.string())]
)
"""What the current policy would do at the state of ``turn`` of a demonstration."""


def inverse_logits(
    q_N: torch.Tensor, next_q_N: torch.Tensor, terminal_N: torch.Tensor, *, gamma: float
) -> torch.Tensor:
    """[N] implicit rewards: Q(s,a) − γ Q(s',a'), and Q(s,a) alone at an episode's last turn. Q is the raw score.

    ``next_q_N`` at terminal rows is not read (it may be anything finite or not). The gradient runs through both Q.
    """
    return q_N - gamma * torch.where(terminal_N, torch.zeros_like(next_q_N), next_q_N)


def inverse_loss(
    q_N: torch.Tensor,
    next_q_N: torch.Tensor,
    terminal_N: torch.Tensor,
    expert_N: torch.Tensor,
    weight_N: torch.Tensor,
    *,
    gamma: float,
) -> torch.Tensor:
    """Weighted mean of BCE(σ(Q(s,a) − γ Q(s',a')), expert) over N turns (paper A, InversePRM)."""
    logit_N = inverse_logits(q_N, next_q_N, terminal_N, gamma=gamma)
    loss_N = F.binary_cross_entropy_with_logits(logit_N, expert_N.to(logit_N), reduction="none")
    return (loss_N * weight_N).sum() / weight_N.sum()


def episode_weights(expert_N: np.ndarray, starts_N: np.ndarray) -> np.ndarray:
    """float32 [N], mean 1: weights under which both classes count as many episodes each.

    The reference draws as many episodes of one class as of the other and throws the rest away; weighting each turn by
    1 / (episodes of its class) has the same expectation and keeps them. ``starts_N`` marks first turns.

    Raises:
        DataError: a class without episodes.
    """
    episodes = {side: int((starts_N & (expert_N == side)).sum()) for side in (True, False)}
    if not all(episodes.values()):
        raise DataError(
            f"inverse: {episodes[True]} expert and {episodes[False]} learner episodes; both are needed on each "
            "side of the split (demos.games, rollout.games, rollout.validation_share)"
        )
    weight = np.where(expert_N, 1 / episodes[True], 1 / episodes[False])
    return (weight / weight.mean()).astype(np.float32)


def assemble_inverse(
    demonstrations: Path | Sequence[Path],
    learner: Sequence[Path],
    resampled: pa.Table,
    *,
    validation_share: float,
    seed: int,
    lost_only: bool = False,
    cut: Cut | None = None,
) -> pa.Table:
    """D⁺ and D⁻ as rows of :data:`INVERSE`, sorted by dataset, game, episode, turn.

    On expert turns a' is not the expert's but the current policy's: ``resampled`` is of :data:`RESAMPLED`, one action
    for the state of each expert turn but the first. It is joined by name, so no row can slip against another. On
    learner turns a' is what the learner did next. D⁻ accumulates: pass the rollouts of all iterations so far in
    ``learner``. On each side of the split the classes weigh as if they had as many episodes. ``lost_only`` leaves the
    learners' won episodes out, and is all that reads an outcome. ``cut``: where every episode is cut before anything
    else is read of it.

    Raises:
        FileNotFoundError: no shards.
        ValueError: an expert state without a resampled action or with two, turns that are missing or stand twice, a
            class without episodes on one side of the split.
    """
    expert = _turns(demonstrations, DEMONSTRATIONS, cut)
    sampled = cast(pl.DataFrame, pl.from_arrow(resampled.select(RESAMPLED.names)))
    twice = sampled.filter(sampled.select(_WHERE).is_duplicated())
    if len(twice):
        raise ValueError(f"inverse: {_name(twice)} has two resampled actions")
    after = sampled.select(
        "game_id",
        "episode",
        (pl.col("turn") - 1).cast(pl.Int32).alias("turn"),
        pl.col("action").alias("next_action"),
        pl.col("reason").alias("next_reason"),
    )
    positive = expert.drop(_NEXT).join(after, on=_WHERE, how="left", maintain_order="left")
    lacking = positive.filter(~pl.col("terminal") & pl.col("next_action").is_null())
    if len(lacking):
        raise ValueError(
            f"inverse: no action resampled at the state after {_name(lacking)} ({len(lacking)} such turns)"
        )
    positive = positive.with_columns(pl.when(~pl.col("terminal")).then(name) for name in _NEXT)  # not nobody's state
    negative = [_turns(path, i + 1, cut, lost_only) for i, path in enumerate(learner)]
    names = [name for name in INVERSE.names if name not in ("expert", "weight", "split")] + ["first"]
    rows = pl.concat([part.select(names) for part in (positive, *negative)])
    games = sorted(set(rows["game_id"]))
    held_out = dict(zip(games, validation_games(games, validation_share, seed)))
    held_out_N = np.array([held_out[game] for game in rows["game_id"]])
    expert_N, first_N = rows["dataset"].to_numpy() == 0, rows["first"].to_numpy()
    weight_N = np.empty(len(rows), np.float32)
    for side in np.unique(held_out_N):
        at = held_out_N == side
        weight_N[at] = episode_weights(expert_N[at], first_N[at])
    split = pl.Series(np.where(held_out_N, "validation", "train"))
    rows = rows.with_columns(expert=pl.Series(expert_N), weight=pl.Series(weight_N), split=split)
    return rows.to_arrow().select(INVERSE.names).cast(INVERSE)


def _turns(paths: Path | Sequence[Path], dataset: int, cut: Cut | None, lost_only: bool = False) -> pl.DataFrame:
    """Decided turns with the episode's own next action. Outcomes are not among the columns."""
    found, episode = pl.scan_parquet(shards(paths)), ("game_id", "episode")
    if lost_only:
        found = found.filter(~pl.col("won").any().over(episode))
    rows = found.select(*_WHERE, "action", "reason", "method").sort(_WHERE).collect()
    broken = rows.filter(pl.col("turn") != pl.int_range(pl.len()).over(episode))
    if len(broken):
        raise DataError(f"inverse: {_name(broken)}: turns of an episode must run 0, 1, 2 … without a gap")
    rows = (rows if cut is None else _kept(rows, dataset, cut)).with_columns(
        pl.lit(dataset, pl.Int32).alias("dataset"),
        pl.col("action").shift(-1).over(episode).alias("next_action"),
        pl.col("reason").shift(-1).over(episode).alias("next_reason"),
        (pl.col("turn") == pl.len().over(episode) - 1).alias("terminal"),
    )
    decided = rows.filter(pl.col("method") != REPLAYED)
    return decided.with_columns(first=pl.col("turn") == pl.col("turn").min().over(episode))


def _kept(rows: pl.DataFrame, dataset: int, cut: Cut) -> pl.DataFrame:
    """The turns before each episode's cut."""
    episode = ("game_id", "episode")
    found = rows.group_by(episode, maintain_order=True).agg(start=(pl.col("method") == REPLAYED).sum())
    lengths = [cut.length(dataset, *name_and_start) for name_and_start in found.iter_rows()]
    ends = found.select(*episode, end=pl.Series(lengths, dtype=pl.Int64))
    joined = rows.join(ends, on=episode, how="left", maintain_order="left")
    return joined.filter(pl.col("turn") < pl.col("end")).drop("end")


def _name(rows: pl.DataFrame) -> str:
    game, episode, turn = rows.select(_WHERE).row(0)
    return f"game {game}, episode {episode}, turn {turn}"
