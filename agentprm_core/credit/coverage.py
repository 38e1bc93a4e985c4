"""Can these Monte Carlo labels be trusted? Visits per (s,a), the variance of Q̂ that follows from them, and whether Q̂
from one half of the episodes foretells the other half: its returns, and which of two actions is the better one."""

from __future__ import annotations

import numpy as np
import polars as pl

from agentprm_core.credit.monte_carlo import returns, visit_statistics
from agentprm_core.credit.turns import Turns
from agentprm_core.evaluate import wilson


def coverage_report(
    turns: Turns, *, visit_key: str, gamma: float, outcome: str = "signed", margin: float = 0.03
) -> dict:
    """The report as a tree of plain numbers (None where a figure is undefined, and its n says why).

    ``visits``: see :func:`visit_table`. ``held_out``: see :func:`held_out_returns`. ``ranking``: see
    :func:`held_out_ranking`. Episodes of even index are one half, those of odd index the other. Turns that were
    replayed to where an episode starts are in none of them.

    Raises:
        ValueError: ``visit_key``, ``gamma`` or ``outcome`` out of range.
    """
    decided_N = turns.decided_N
    key_N = turns.state_actions(visit_key)[decided_N]
    return_N = returns(turns, gamma=gamma, outcome=outcome)[decided_N]
    state_N, half_N = turns.states(visit_key)[decided_N], turns.episode_N[decided_N] % 2
    return {
        "key": visit_key,
        "visits": visit_table(key_N, return_N),
        "held_out": held_out_returns(key_N, return_N, half_N),
        "ranking": held_out_ranking(state_N, key_N, return_N, half_N, margin=margin),
    }


def visit_table(key_N: np.ndarray, return_N: np.ndarray) -> list[dict]:
    """One row a range of visits (1, 2, 3–4, 5–8, …): ``from``, ``to``, ``keys``, ``turns``, and over its keys the mean
    of ``return_variance`` s² (unbiased, None for one visit) and of ``q_variance`` s²/n, the variance of Q̂ itself."""
    found = visit_statistics(key_N, return_N)
    _, first = np.unique(key_N, return_index=True)
    visits, variance = found.visits_N[first], found.variance_N[first]
    unbiased = variance * visits / np.maximum(visits - 1, 1)
    bucket = _bucket(visits)
    rows = []
    for b in np.unique(bucket):
        n, s2 = visits[bucket == b], unbiased[bucket == b]
        once = b == 0
        rows.append(
            _range(b)
            | {
                "keys": len(n),
                "turns": int(n.sum()),
                "return_variance": None if once else float(s2.mean()),
                "q_variance": None if once else float((s2 / n).mean()),
            }
        )
    return rows


def held_out_returns(key_N: np.ndarray, return_N: np.ndarray, half_N: np.ndarray) -> dict:
    """Q̂ of one half of the episodes against the returns of the other half's turns with the same (s,a), both ways.

    ``share``: of all turns, those whose key the other half knows. ``correlation`` (Pearson), ``mse``, and
    ``mse_of_mean``, the error of always saying the mean return. ``by_visits``: the same by the visits behind Q̂.
    """
    q_N, visits_N = _from_the_other_half(key_N, return_N, half_N)
    known = visits_N > 0
    bucket = _bucket(visits_N[known])
    pairs = q_N[known], return_N[known]
    by_visits = [_range(b) | _agreement(*(x[bucket == b] for x in pairs)) for b in np.unique(bucket)]
    return {"share": float(known.mean())} | _agreement(*pairs) | {"by_visits": by_visits}


def held_out_ranking(
    state_N: np.ndarray, key_N: np.ndarray, return_N: np.ndarray, half_N: np.ndarray, *, margin: float
) -> dict:
    """Of the pairs of actions at one state that both halves tried and the first tells apart by more than ``margin``,
    how many the second orders the same way.

    ``pairs``, ``agree``, ``ties`` (equal in the second half, counted half in ``accuracy``), the Wilson interval
    ``ci_low``, ``ci_high`` of ``accuracy``; ``by_visits``: the same by the visits in the first half of the less visited
    action. Even half first.
    """
    halves = []
    for half in (0, 1):
        at = half_N == half
        found = visit_statistics(key_N[at], return_N[at])
        rows = {"state": state_N[at], "key": key_N[at], "q": found.q_N, "visits": found.visits_N}
        halves.append(pl.DataFrame(rows).unique("key", maintain_order=True))
    both = halves[0].join(halves[1], on=["state", "key"], suffix="_second")
    pairs = both.join(both, on="state", suffix="_other").filter(pl.col("q") - pl.col("q_other") > margin)
    second = (pairs["q_second"] - pairs["q_second_other"]).to_numpy()
    bucket = _bucket(pairs.select(pl.min_horizontal("visits", "visits_other")).to_series().to_numpy())
    by_visits = [_range(b) | _order(second[bucket == b]) for b in np.unique(bucket)]
    return _order(second) | {"by_visits": by_visits}


def _order(difference: np.ndarray) -> dict:
    agree, ties, n = int((difference > 0).sum()), int((difference == 0).sum()), len(difference)
    low, high = wilson(agree + ties // 2, n) if n else (None, None)
    accuracy = (agree + ties / 2) / n if n else None
    return {"pairs": n, "agree": agree, "ties": ties, "accuracy": accuracy, "ci_low": low, "ci_high": high}


def _from_the_other_half(key_N: np.ndarray, return_N: np.ndarray, half_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(Q̂, visits) of each turn's key in the half of the episodes that the turn is not in; visits 0 where unknown."""
    _, key = np.unique(key_N, return_inverse=True)
    keys = key.max() + 1
    cell = half_N * keys + key  # (half, key)
    visits = np.bincount(cell, minlength=2 * keys)
    total = np.bincount(cell, weights=return_N, minlength=2 * keys)
    other = (1 - half_N) * keys + key
    return total[other] / np.maximum(visits[other], 1), visits[other]


def _agreement(q: np.ndarray, seen: np.ndarray) -> dict:
    n = len(q)
    varied = n > 2 and q.std() > 0 and seen.std() > 0
    return {
        "turns": n,
        "correlation": float(np.corrcoef(q, seen)[0, 1]) if varied else None,
        "mse": float(((q - seen) ** 2).mean()) if n else None,
        "mse_of_mean": float(seen.var()) if n else None,
    }


def _bucket(visits: np.ndarray) -> np.ndarray:
    """0 for 1 visit, 1 for 2, 2 for 3–4, 3 for 5–8, …"""
    return np.ceil(np.log2(visits)).astype(np.int64)


def _range(bucket: int) -> dict[str, int]:
    return {"from": 2 ** int(bucket - 1) + 1 if bucket else 1, "to": 2 ** int(bucket)}
