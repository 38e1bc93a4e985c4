"""Does a process reward model know which *action* is better? Measured at states where several actions were tried.

Correlation with returns across states says little about it: a model may know that the mug is found and the microwave is
near, and still not tell opening it from walking away. Best-of-N and the policy update live on the order within a state.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_RESAMPLES = 2000


def ranking_accuracy(
    state_N: Sequence, q_N: np.ndarray, score_N: np.ndarray, *, seed: int, margin: float = 0.0
) -> dict:
    """How often scores order two actions of one state as their measured returns do, over N tried actions.

    Args:
        state_N: which state each action was tried at (any hashable, sortable names).
        q_N: mean return of the rollouts that began with the action.
        score_N: the PRM's score of it.
        seed: of the bootstrap.
        margin: pairs whose returns differ by no more are left out: noise orders them.

    Returns:
        ``states`` and ``pairs`` compared; ``accuracy``, the share of pairs in the measured order (equal scores count
        half; None without a pair) with its 95 % bootstrap interval over states ``accuracy_low``, ``accuracy_high``;
        ``gain``, how much more the PRM's favourite returned than the state's mean action, ``gain_low``, ``gain_high``;
        ``headroom``, the same for the action that returned most, which noise in the returns flatters; and
        ``better_than_chance``, see :func:`better_than_chance`.

    Raises:
        ValueError: arrays of different lengths.
    """
    if not len(state_N) == len(q_N) == len(score_N):
        raise ValueError(f"{len(state_N)} states, {len(q_N)} returns and {len(score_N)} scores; they must be one each")
    _, number_N = np.unique(np.asarray(state_N), return_inverse=True)
    rows = [_one_state(q_N[of], score_N[of], margin) for of in _members(number_N)]
    compared_S4 = np.array([row for row in rows if row[1]], dtype=np.float64).reshape(-1, 4)
    figures = {"states": len(compared_S4), "pairs": int(compared_S4[:, 1].sum())}
    if not len(compared_S4):
        empty = ("accuracy", "accuracy_low", "accuracy_high", "gain", "gain_low", "gain_high", "headroom")
        return figures | dict.fromkeys(empty) | {"better_than_chance": False}
    agree, pairs, gain, headroom = compared_S4.sum(0)
    weights_RS = np.random.default_rng(seed).multinomial(
        len(compared_S4), np.full(len(compared_S4), 1 / len(compared_S4)), _RESAMPLES
    )
    resampled_R4 = weights_RS @ compared_S4
    figures |= {"accuracy": agree / pairs, "gain": gain / len(compared_S4), "headroom": headroom / len(compared_S4)}
    figures |= _interval("accuracy", resampled_R4[:, 0] / resampled_R4[:, 1])
    figures |= _interval("gain", resampled_R4[:, 2] / len(compared_S4))
    return figures | {"better_than_chance": better_than_chance(figures)}


def better_than_chance(figures: dict) -> bool:
    """Whether the whole interval of the accuracy lies above ½. Too few pairs to tell is no."""
    return figures["accuracy_low"] is not None and figures["accuracy_low"] > 0.5


def _one_state(q_A: np.ndarray, score_A: np.ndarray, margin: float) -> tuple[float, int, float, float]:
    """(pairs in order, pairs, gain of the favourite, gain of the best) of one state's actions."""
    better_AA = q_A[:, None] - q_A[None, :] > margin
    apart_AA = np.sign(score_A[:, None] - score_A[None, :])
    agree = (better_AA * (apart_AA + 1) / 2).sum()
    favourite = q_A[score_A == score_A.max()].mean()
    return agree, better_AA.sum(), favourite - q_A.mean(), q_A.max() - q_A.mean()


def _members(number_N: np.ndarray) -> list[np.ndarray]:
    order = np.argsort(number_N, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(number_N[order])) + 1)


def _interval(name: str, values_R: np.ndarray) -> dict[str, float]:
    low, high = np.percentile(values_R, [2.5, 97.5])
    return {f"{name}_low": float(low), f"{name}_high": float(high)}
