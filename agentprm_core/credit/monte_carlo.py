"""Monte Carlo targets: Q̂(s,a) is the mean return over all visits to (s,a), found through a hash map (paper A §2).

Shards of episodes in, one sorted Parquet file of labels out, by columns: a million turns take about a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from agentprm_core.credit.split import validation_games
from agentprm_core.credit.turns import Turns, check_key, read_turns
from agentprm_core.datasets import atomic_write
from agentprm_core.types import LABELS

OUTCOME_SCALES = ("signed", "binary")
"""What a lost episode is worth: ``signed`` R ∈ {−1, +1}, mapped to [0,1] as (R+1)/2 (paper A), so that the far end of
a long episode tends to ½; ``binary`` R ∈ {0, 1}, so that it tends to 0."""

_ROWS = 1 << 17

Shaped = Callable[[Turns, np.ndarray, np.ndarray], np.ndarray]
"""(turns, Q̂ of each, side of each) → other labels of them."""


@dataclass(frozen=True)
class Visits:
    """Statistics of the returns at each turn's (s,a), over N turns."""

    q_N: np.ndarray
    """float64 mean over the visits, in [0,1]."""
    variance_N: np.ndarray
    """float64 mean squared deviation over the visits; n/(n−1) of it is the unbiased one."""
    visits_N: np.ndarray
    """int64 ≥ 1, and 0 where the turn was replayed."""


def returns(turns: Turns, *, gamma: float, outcome: str = "signed") -> np.ndarray:
    """float64 [N] in [0,1]: the discounted return of each turn, γ^{T−1−t}·R, mapped to [0,1] (paper A §2 step 2).

    Raises:
        ValueError: ``gamma`` outside (0, 1], an unknown ``outcome``.
    """
    steps = turns.per_turn(turns.lengths_E) - 1 - turns.turn_N
    return discounted(turns.per_turn(turns.reward_E), steps, gamma=gamma, outcome=outcome)


def discounted(reward: np.ndarray, steps: np.ndarray, *, gamma: float, outcome: str) -> np.ndarray:
    """float64 in [0,1]: an outcome ``steps`` turns away, γ^steps·R mapped to [0,1]. ``reward`` is in [0, 1]: R itself
    where the outcome is binary, (R+1)/2 where it is signed.

    Raises:
        ValueError: ``gamma`` outside (0, 1] or an unknown ``outcome``.
    """
    if not 0 < gamma <= 1:
        raise ValueError(f"critic.gamma: {gamma} is not in (0, 1]")
    if outcome not in OUTCOME_SCALES:
        raise ValueError(f"critic.outcome: {outcome!r} is not one of {', '.join(OUTCOME_SCALES)}")
    discount = gamma ** steps.astype(np.float64)
    if outcome == "binary":
        return reward * discount
    return ((2.0 * reward - 1.0) * discount + 1) / 2


def visit_statistics(key_N: np.ndarray, return_N: np.ndarray) -> Visits:
    """Mean, variance and number of the returns that share a key. Sums run in row order, so bytes do not depend on
    threads."""
    _, key, count = np.unique(key_N, return_inverse=True, return_counts=True)
    mean = np.bincount(key, weights=return_N) / count
    variance = np.bincount(key, weights=(return_N - mean[key]) ** 2) / count
    return Visits(mean[key], variance[key], count[key])


def decided_statistics(key_N: np.ndarray, return_N: np.ndarray, decided_N: np.ndarray) -> Visits:
    """:func:`visit_statistics` of the decided turns. A replayed turn is no visit: it keeps its own return, has no
    visits and no variance, and changes the figures of no other turn."""
    q_N, variance_N = return_N.astype(np.float64), np.zeros(len(return_N))
    visits_N = np.zeros(len(return_N), np.int64)
    found = visit_statistics(key_N[decided_N], return_N[decided_N])
    q_N[decided_N], variance_N[decided_N], visits_N[decided_N] = found.q_N, found.variance_N, found.visits_N
    return Visits(q_N, variance_N, visits_N)


def monte_carlo_q(turns: Turns, *, gamma: float, visit_key: str, side_N: np.ndarray, outcome: str = "signed") -> Visits:
    """Q̂ of every turn: the mean return over the visits to its (s,a) on its own side of the split. Only turns that were
    decided are visits (:func:`decided_statistics`).

    Histories of two games can read alike. They are one key, as in the paper, but never across ``side_N`` (bool [N],
    validation or not): a validation target that holds training returns would flatter the model.
    """
    return decided_statistics(
        turns.state_actions(visit_key) + side_N.astype(np.uint64),
        returns(turns, gamma=gamma, outcome=outcome),
        turns.decided_N,
    )


def label_monte_carlo(
    rollouts: Path | Sequence[Path],
    out: Path,
    *,
    gamma: float,
    visit_key: str,
    validation_share: float,
    seed: int,
    outcome: str = "signed",
    shaped: Shaped | None = None,
) -> dict[str, float]:
    """Label a dataset of episodes: one row a turn in schema LABELS, sorted by game, episode, turn.

    ``out`` appears whole or not at all, with the same bytes for the same input. ``visit_key`` is one of
    ``turns.VISIT_KEYS``. ``shaped`` (turns, Q̂ of each, side of each) makes other labels of them
    (:mod:`agentprm_core.credit.shaping`). Returns counts, the moments of q, and the coverage of *both* keys: the share
    of turns whose (s,a) was visited at least twice, and the mean visits a key.

    Raises:
        FileNotFoundError, ValueError: as :func:`~agentprm_core.credit.turns.read_turns`, :func:`returns` and
            :func:`~agentprm_core.credit.split.validation_games`.
    """
    check_key(visit_key)
    turns = read_turns(rollouts)
    side = validation_games(turns.games, validation_share, seed)
    visits = monte_carlo_q(turns, gamma=gamma, visit_key=visit_key, side_N=side[turns.game_N], outcome=outcome)
    if shaped:
        visits = replace(visits, q_N=shaped(turns, visits.q_N, side[turns.game_N]))
    write_labels(label_batches(turns, visits, side), out)
    return {**_counts(turns, side, visits), **coverage_of_keys(turns)}


def label_batches(turns: Turns, visits: Visits, side: np.ndarray) -> Iterator[pa.Table]:
    """Rows of LABELS in pieces. ``side`` is bool, one a game: for validation or not."""
    games, sides = pa.array(turns.games), pa.array(["train", "validation"])
    for start in range(0, len(turns.turn_N), _ROWS):
        piece = slice(start, start + _ROWS)
        game = turns.game_N[piece]
        columns = [
            games.take(pa.array(game)),
            turns.episode_N[piece],
            turns.turn_N[piece],
            visits.q_N[piece].astype(np.float32),
            visits.visits_N[piece].astype(np.int32),
            visits.variance_N[piece].astype(np.float32),
            sides.take(pa.array(side[game].astype(np.int8))),
        ]
        yield pa.table(dict(zip(LABELS.names, columns)), schema=LABELS)


def write_labels(batches: Iterator[pa.Table], out: Path) -> None:
    """One Parquet file, zstd, whole or not at all."""
    with atomic_write(out) as aside, pq.ParquetWriter(aside, LABELS, compression="zstd", compression_level=3) as writer:
        for batch in batches:
            writer.write_table(batch)


def coverage_of_keys(turns: Turns) -> dict[str, float]:
    """How often a decided (s,a) comes back, under either key: ``coverage_KEY`` and ``visits_per_key_KEY``."""
    found: dict[str, float] = {}
    for key in ("history", "state"):
        _, count = np.unique(turns.state_actions(key)[turns.decided_N], return_counts=True)
        found[f"coverage_{key}"] = float(count[count > 1].sum() / count.sum())
        found[f"visits_per_key_{key}"] = float(count.mean())
    return found


def _counts(turns: Turns, side: np.ndarray, visits: Visits) -> dict[str, float]:
    validation = int(side[turns.game_N].sum())
    return {
        "games": len(turns.games),
        "episodes": len(turns.won_E),
        "turns": len(turns.turn_N),
        "train_turns": len(turns.turn_N) - validation,
        "validation_turns": validation,
        "success": float(turns.won_E.mean()),
        "q_mean": float(visits.q_N[turns.decided_N].mean()),
        "q_std": float(visits.q_N[turns.decided_N].std()),
    }
