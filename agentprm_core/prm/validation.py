"""How well scores predict what happens on games nobody trained on: loss, AUC, calibration, correlation.

Good figures here are necessary and not sufficient: a model that knows which *states* are promising may still not know
which *action* is better. That is :mod:`agentprm_core.prm.ranking`'s question.
"""

from __future__ import annotations

import numpy as np

from agentprm_core.errors import DataError

_BINS = 10
_EPSILON = 1e-7


def validate(score_N: np.ndarray, q_N: np.ndarray, won_N: np.ndarray) -> dict:
    """Figures of N held-out actions.

    Args:
        score_N: Q_φ in (0, 1).
        q_N: targets in [0, 1].
        won_N: whether the action's episode was won.

    Returns:
        ``loss`` (soft BCE, nats an action) and ``loss_of_mean`` (that of always saying the mean target); ``auc`` (of
        won against lost, None where there is only one kind); ``ece`` (expected calibration error against ``q_N``) and
        ``calibration`` (bins {score, q, count}); ``correlation`` and ``rank_correlation`` with ``q_N`` (None where
        either is constant); ``actions``.

    Raises:
        DataError: nothing to validate on.
    """
    if not len(score_N):
        raise DataError("no held-out actions to validate on: raise rollout.validation_share or rollout.games")
    score_N, q_N = score_N.astype(np.float64), q_N.astype(np.float64)
    bins = calibration(score_N, q_N)
    return {
        "actions": len(score_N),
        "loss": _bce(score_N, q_N),
        "loss_of_mean": _bce(np.full_like(q_N, q_N.mean()), q_N),
        "auc": auc(score_N, won_N),
        "ece": sum(b["count"] * abs(b["score"] - b["q"]) for b in bins) / len(score_N),
        "calibration": bins,
        "correlation": _correlation(score_N, q_N),
        "rank_correlation": _correlation(_ranks(score_N), _ranks(q_N)),
    }


def auc(score_N: np.ndarray, positive_N: np.ndarray) -> float | None:
    """Chance that a positive scores above a negative, ties counting half (Mann-Whitney). None without both kinds."""
    positives = int(positive_N.sum())
    negatives = len(score_N) - positives
    if not positives or not negatives:
        return None
    above = _ranks(score_N)[positive_N.astype(bool)].sum() - positives * (positives + 1) / 2
    return float(above / (positives * negatives))


def calibration(score_N: np.ndarray, q_N: np.ndarray) -> list[dict]:
    """Ten equal-width bins of the score with mean score, mean target and count; empty ones left out."""
    bin_N = np.minimum((score_N * _BINS).astype(int), _BINS - 1)
    return [
        {
            "score": float(score_N[bin_N == b].mean()),
            "q": float(q_N[bin_N == b].mean()),
            "count": int((bin_N == b).sum()),
        }
        for b in np.unique(bin_N)
    ]


def _bce(score_N: np.ndarray, q_N: np.ndarray) -> float:
    p_N = np.clip(score_N, _EPSILON, 1 - _EPSILON)
    return float(-(q_N * np.log(p_N) + (1 - q_N) * np.log1p(-p_N)).mean())


def _correlation(a_N: np.ndarray, b_N: np.ndarray) -> float | None:
    if a_N.std() == 0 or b_N.std() == 0:
        return None
    return float(np.corrcoef(a_N, b_N)[0, 1])


def _ranks(values_N: np.ndarray) -> np.ndarray:
    from scipy.stats import rankdata  # takes half a second to import

    return rankdata(values_N)
