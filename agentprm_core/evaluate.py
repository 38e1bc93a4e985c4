"""What episodes say about a policy: outcomes game by game, success with its interval, paired tests, rows of the table.

An outcome is one game played once in one way. Success is reported with its number of games and a 95 % Wilson interval;
two policies are compared on the games both played, by McNemar's exact test.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from statistics import NormalDist

import numpy as np
import pyarrow as pa

from agentprm_core.errors import DataError
from agentprm_core.types import Episode, Game

OUTCOMES = pa.schema(
    [
        ("iteration", pa.int32()),
        ("method", pa.string()),
        ("split", pa.string()),
        ("decoding", pa.string()),
        ("constrained", pa.bool_()),
        ("seed", pa.int64()),
        ("game_id", pa.string()),
        ("kind", pa.string()),
        ("won", pa.bool_()),
        ("reward", pa.float32()),
        ("actions", pa.int32()),
        ("inadmissible", pa.int32()),
        ("truncated", pa.bool_()),
        ("score", pa.float32()),
        ("generated", pa.int64()),
        ("policy_read", pa.int64()),
        ("prm_read", pa.int64()),
        ("world_steps", pa.int64()),
        ("policy", pa.string()),
    ]
)
"""One row a game and way of playing, sorted by split, decoding, game. ``policy`` is the checkpoint's digest.
``score`` is the mean Q_φ of the episode's actions under the PRM that goes with the policy; null where there is none.
``generated`` … are the tokens that finding the episode cost (:class:`agentprm_core.policy.sampler.Cost`), and
``world_steps`` the actions done in any world, also those of paths that were given up."""

TOKENS = ("generated", "policy_read", "prm_read")
COMPUTE = (*TOKENS, "world_steps")

ROW_KEY = ("iteration", "method", "split", "decoding", "constrained", "seed")
"""What one row of the iterations' table stands for."""


@dataclass(frozen=True, slots=True)
class Paired:
    """Two policies on the same games."""

    games: int
    gained: int
    """Games lost before and won now."""
    lost: int
    """Games won before and lost now."""
    difference: float
    """Success now minus success before."""
    ci_low: float
    ci_high: float
    """95 % interval of the difference (Wald, paired)."""
    p_value: float
    """McNemar's exact test, two-sided."""


LEVEL = 0.05
"""A difference shows where its p is below this."""


def wilson(successes: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """The Wilson score interval of a share (Wilson 1927). Raises ValueError for no trials or impossible counts."""
    if n < 1 or not 0 <= successes <= n:
        raise ValueError(f"no interval for {successes} successes in {n} trials")
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share = successes / n
    centre = share + z * z / (2 * n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    # exactly 0 and 1 at the ends, where rounding would leave a trace
    low = 0.0 if successes == 0 else (centre - half) / scale
    high = 1.0 if successes == n else (centre + half) / scale
    return low, high


def paired_test(before: Mapping[str, bool], after: Mapping[str, bool]) -> Paired:
    """Compare two policies game by game (McNemar 1947, exact).

    Raises:
        DataError: the games are not the same ones.
    """
    if before.keys() != after.keys():
        odd = sorted(before.keys() ^ after.keys())
        raise DataError(f"not the same games: {len(odd)} were played by one of the two only, e.g. {odd[0]}")
    n = len(before)
    gained = sum(after[game] and not won for game, won in before.items())
    lost = sum(won and not after[game] for game, won in before.items())
    return paired_counts(n, gained, lost)


def paired_counts(n: int, gained: int, lost: int) -> Paired:
    """The same from counts: of n games so many are won by the second policy alone, and so many by the first alone."""
    discordant = gained + lost
    difference = (gained - lost) / n
    half = NormalDist().inv_cdf(0.975) * math.sqrt(max(discordant - (gained - lost) ** 2 / n, 0.0)) / n
    tail = sum(math.comb(discordant, k) for k in range(min(gained, lost) + 1)) / 2**discordant
    return Paired(n, gained, lost, difference, difference - half, difference + half, min(1.0, 2 * tail))


def holm(p_values: Sequence[float]) -> list[float]:
    """Each p-value corrected for the number of tests told together (Holm 1979), in their order.

    Whoever holds the corrected values to 0.05 claims a difference where there is none in at most one of twenty tables.
    The k-th smallest of m counts m − k + 1 times, and no less than a smaller one. The tests may have games in common.
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    corrected, least = [0.0] * len(p_values), 0.0
    for rank, number in enumerate(order):
        least = max(least, min(1.0, (len(order) - rank) * p_values[number]))
        corrected[number] = least
    return corrected


def correct(tests: Sequence[dict]) -> None:
    """Write ``p_holm`` beside the ``p_value`` of tests that are told together (:func:`holm`). One without a p does not
    count, and has None."""
    told = [test["p_value"] for test in tests if test["p_value"] is not None]
    corrected = iter(holm(told))
    for test in tests:
        test["p_holm"] = None if test["p_value"] is None else next(corrected)


def outcomes_table(
    episodes: Iterable[Episode],
    games: Iterable[Game],
    *,
    iteration: int,
    method: str,
    split: str,
    decoding: str,
    constrained: bool,
    seed: int,
    policy: str,
    scores: Mapping[str, float] | None = None,
    label: Callable[[Game], str] = attrgetter("kind"),
) -> pa.Table:
    """Rows of :data:`OUTCOMES`, one an episode, sorted by game. The episodes carry ``cost`` and ``world_steps``, as the
    searches leave them. ``scores``: {game: score}; a game that is not in it has none. ``label``: what success is broken
    down by (:meth:`agentprm_core.worlds.WorldSpec.label`).

    Raises ValueError unless each game was played once.
    """
    kind = {game.id: label(game) for game in games}
    played = sorted(episodes, key=lambda episode: episode.game_id)
    if [episode.game_id for episode in played] != sorted(kind):
        raise ValueError(f"{split}: {len(played)} episodes for {len(kind)} games; each must be played once")
    columns = {
        "game_id": [e.game_id for e in played],
        "kind": [kind[e.game_id] for e in played],
        "won": [e.won for e in played],
        "reward": [e.reward for e in played],
        "actions": [e.length for e in played],
        "inadmissible": [sum(not turn.valid for turn in e.turns) for e in played],
        "truncated": [e.truncated for e in played],
        "score": [(scores or {}).get(e.game_id) for e in played],
    }
    columns |= {name: [getattr(e.extra["cost"], name) for e in played] for name in TOKENS}
    columns["world_steps"] = [e.extra["world_steps"] for e in played]
    constants = {
        "iteration": iteration, "method": method, "split": split, "decoding": decoding,
        "constrained": constrained, "seed": seed, "policy": policy,
    }  # fmt: skip
    columns |= {name: [value] * len(played) for name, value in constants.items()}
    return pa.table({name: columns[name] for name in OUTCOMES.names}, schema=OUTCOMES)


def summary(outcomes: pa.Table) -> list[dict]:
    """One row of the iterations' table for each way of playing: :data:`ROW_KEY`, then

    ``games``, ``success``, ``ci_low``, ``ci_high``, ``mean_reward``, ``mean_actions`` (that were played, in won and
    lost games alike), ``inadmissible`` (share of all actions), ``truncated`` (share of games), ``score`` (mean of those
    that have one, or None), :data:`COMPUTE` (mean a game) and ``by_kind`` ({kind of task: {games, success}}).

    Sorted by :data:`ROW_KEY`.
    """
    groups: dict[tuple, list[dict]] = {}
    for row in outcomes.to_pylist():
        groups.setdefault(tuple(row[name] for name in ROW_KEY), []).append(row)
    return [dict(zip(ROW_KEY, key)) | _measure(groups[key]) for key in sorted(groups)]


def _measure(rows: list[dict]) -> dict:
    won = [row["won"] for row in rows]
    low, high = wilson(sum(won), len(won))
    actions = sum(row["actions"] for row in rows)
    scores = [row["score"] for row in rows if row["score"] is not None]
    return {
        "games": len(rows),
        "success": float(np.mean(won)),
        "ci_low": low,
        "ci_high": high,
        "mean_reward": float(np.mean([row["reward"] for row in rows])),
        "mean_actions": actions / len(rows),
        "inadmissible": sum(row["inadmissible"] for row in rows) / max(actions, 1),
        "truncated": float(np.mean([row["truncated"] for row in rows])),
        "score": float(np.mean(scores)) if scores else None,
        **{name: float(np.mean([row[name] for row in rows])) for name in COMPUTE},
        "by_kind": {
            kind: {"games": len(of_kind), "success": float(np.mean(of_kind))}
            for kind in sorted({row["kind"] for row in rows})
            if (of_kind := [row["won"] for row in rows if row["kind"] == kind])
        },
    }


def by_split(outcomes: pa.Table) -> dict:
    """{split: {decoding: figures}}."""
    figures: dict[str, dict] = {}
    for row in summary(outcomes):
        measured = {name: row[name] for name in row if name not in ("iteration", "method", "split", "decoding")}
        figures.setdefault(row["split"], {})[row["decoding"]] = measured
    return figures


def headline(figures: dict) -> dict:
    """What lies side by side of :func:`by_split`: success with its interval, and the mean number of actions."""
    told = ("success", "ci_low", "ci_high", "mean_actions")
    return {
        split: {way: {name: row[name] for name in told} for way, row in ways.items()} for split, ways in figures.items()
    }


def pooled(outcomes: pa.Table) -> list[dict]:
    """:func:`summary` of all splits together."""
    columns = {name: outcomes[name] for name in OUTCOMES.names}
    return summary(pa.table({**columns, "split": ["all"] * len(outcomes)}))


def pooled_wins(outcomes: pa.Table) -> dict[str, bool]:
    """{split/game: won} of one way of playing, over all splits: two splits may have a game of the same id."""
    splits = dict.fromkeys(outcomes["split"].to_pylist())
    return {f"{split}/{game}": won for split in splits for game, won in wins(outcomes, split=split).items()}


def wins(outcomes: pa.Table, **where: object) -> dict[str, bool]:
    """{game: won} of the outcomes whose columns equal ``where``. Raises ValueError if a game stands there twice."""
    rows = [row for row in outcomes.to_pylist() if all(row[name] == value for name, value in where.items())]
    found = {row["game_id"]: row["won"] for row in rows}
    if len(found) != len(rows):
        raise ValueError(f"{where}: not one outcome a game; narrow it down by more columns")
    return found
