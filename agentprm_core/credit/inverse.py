"""InversePRM: what separates an expert's turns from the learner's, without any outcome reward (paper A, InversePRM).

With the implicit reward r(s,a) = Q(s,a) − γ E_{a'~π}[Q(s',a')], the PRM raises r on expert turns D⁺ and lowers it on
learner turns D⁻. Nothing here reads the columns ``reward`` and ``done``; an episode ends where its rows end.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import torch
import torch.nn.functional as F

from agentprm_core.credit.turns import shards

INVERSE = pa.schema(
    [
        ("dataset", pa.int32()),
        ("game_id", pa.string()),
        ("episode", pa.int32()),
        ("turn", pa.int32()),
        ("action", pa.string()),
        ("next_action", pa.string()),
        ("terminal", pa.bool_()),
        ("expert", pa.bool_()),
        ("weight", pa.float32()),
    ]
)
"""One row a turn. ``dataset`` 0 is the demonstrations, 1 … the learner's rollouts in the order given; ``next_action``
is a' at the state of the next turn, null where ``terminal``."""

_WHERE = ("game_id", "episode", "turn")


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
        ValueError: a class without episodes.
    """
    episodes = {side: int((starts_N & (expert_N == side)).sum()) for side in (True, False)}
    if not all(episodes.values()):
        raise ValueError(f"inverse: {episodes[True]} expert and {episodes[False]} learner episodes; both are needed")
    weight = np.where(expert_N, 1 / episodes[True], 1 / episodes[False])
    return (weight / weight.mean()).astype(np.float32)


def assemble_inverse(demonstrations: Path | Sequence[Path], learner: Sequence[Path], resampled: pa.Table) -> pa.Table:
    """D⁺ and D⁻ as rows of :data:`INVERSE`, sorted by dataset, game, episode, turn.

    On expert turns a' is not the expert's but the current policy's: ``resampled`` holds one ``action`` for the state
    of each expert turn but the first (``game_id``, ``episode``, ``turn``, ``action``; ``turn`` is the turn whose state
    it was sampled in). It is joined by name, so no row can slip against another. On learner turns a' is what the
    learner did next. D⁻ accumulates: pass the rollouts of all iterations so far in ``learner``.

    Raises:
        FileNotFoundError: no shards.
        ValueError: an expert state without a resampled action or with two, turns that are missing or stand twice, a
            class without episodes.
    """
    expert = _turns(demonstrations, 0)
    sampled = pl.from_arrow(resampled.select([*_WHERE, "action"]))
    twice = sampled.filter(sampled.select(_WHERE).is_duplicated())
    if len(twice):
        raise ValueError(f"inverse: {_name(twice)} has two resampled actions")
    after = sampled.select(
        "game_id", "episode", (pl.col("turn") - 1).cast(pl.Int32).alias("turn"), pl.col("action").alias("next_action")
    )
    positive = expert.drop("next_action").join(after, on=_WHERE, how="left", maintain_order="left")
    lacking = positive.filter(~pl.col("terminal") & pl.col("next_action").is_null())
    if len(lacking):
        raise ValueError(
            f"inverse: no action resampled at the state after {_name(lacking)} ({len(lacking)} such turns)"
        )
    positive = positive.with_columns(pl.when(~pl.col("terminal")).then("next_action"))  # none for nobody's state
    negative = [_turns(path, i + 1) for i, path in enumerate(learner)]
    names = [name for name in INVERSE.names if name not in ("expert", "weight")]
    rows = pl.concat([part.select(names) for part in (positive, *negative)])
    is_expert = rows["dataset"].to_numpy() == 0
    weight = episode_weights(is_expert, rows["turn"].to_numpy() == 0)
    rows = rows.with_columns(expert=pl.Series(is_expert), weight=pl.Series(weight))
    return rows.to_arrow().select(INVERSE.names).cast(INVERSE)


def _turns(paths: Path | Sequence[Path], dataset: int) -> pl.DataFrame:
    """Turns with the episode's own next action. Outcomes are not among the columns."""
    rows = pl.scan_parquet(shards(paths)).select(*_WHERE, "action").sort(_WHERE).collect()
    episode = ("game_id", "episode")
    rows = rows.with_columns(
        pl.lit(dataset, pl.Int32).alias("dataset"),
        pl.col("action").shift(-1).over(episode).alias("next_action"),
        (pl.int_range(pl.len()).over(episode)).alias("expected"),
        (pl.col("turn") == pl.len().over(episode) - 1).alias("terminal"),
    )
    broken = rows.filter(pl.col("turn") != pl.col("expected"))
    if len(broken):
        raise ValueError(f"inverse: {_name(broken)}: turns of an episode must run 0, 1, 2 … without a gap")
    return rows


def _name(rows: pl.DataFrame) -> str:
    game, episode, turn = rows.select(_WHERE).row(0)
    return f"game {game}, episode {episode}, turn {turn}"
