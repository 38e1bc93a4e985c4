"""Process reward shaping with a reference policy μ (paper A, variants): labels for few rollouts, from its advantage.

N turns of E episodes, stored one after another; ``starts_E`` are the rows of first turns.
"""

from __future__ import annotations

import numpy as np

from agentprm_core.credit.monte_carlo import decided_statistics, returns
from agentprm_core.credit.turns import Turns
from agentprm_core.errors import DataError

STEEPNESS = 3.0
"""c of the reference implementation's σ((q − mean)·c/IQR)."""
_REMEDY = "play more games (rollout.games) or choose another critic.shaping"


def visited_values(turns: Turns, *, visit_key: str, side_N: np.ndarray, gamma: float) -> np.ndarray:
    """float64 [N] in [0,1]: V^μ(s_t) as the mean return over all visits to the state, where μ played the turns itself.
    R ∈ {0, 1}; ``side_N`` as in :func:`agentprm_core.credit.monte_carlo.monte_carlo_q`."""
    key_N = turns.states(visit_key) + side_N.astype(np.uint64)
    return decided_statistics(key_N, returns(turns, gamma=gamma, outcome="binary"), turns.decided_N).q_N


def scored_values(score_N: np.ndarray, turns: Turns, *, gamma: float) -> np.ndarray:
    """float64 [N] in [0,1]: V^μ(s_t) from Q^μ(s_t, a_t), a PRM's scores of the turns.

    The world is deterministic and rewards only the end, so V^μ(s_{t+1}) = Q^μ(s_t, a_t) / γ. V^μ(s_0) is the mean of
    Q^μ(s_0, a_0) over the game's episodes: an expectation over the actions of who played, not of μ.
    """
    value_N = np.minimum(np.append(0.0, score_N[:-1].astype(np.float64)) / gamma, 1.0)
    game_E, first_E = turns.game_N[turns.starts_E], score_N[turns.starts_E]
    mean = np.bincount(game_E, weights=first_E) / np.maximum(np.bincount(game_E), 1)
    value_N[turns.starts_E] = mean[game_E]
    return value_N


def shaped_labels(
    turns: Turns,
    q_N: np.ndarray,
    value_N: np.ndarray,
    *,
    shaping: str,
    alpha: float,
    gamma: float,
    visit_key: str,
    side_N: np.ndarray,
) -> np.ndarray:
    """float64 [N] in [0,1]: labels shaped with V^μ, one value a (s,a), which the visits to it share.

    ``shaping`` is ``blend`` or ``potential``; ``alpha`` is the blend's. ``q_N`` are Monte Carlo labels of R ∈ {0, 1}.

    Raises:
        ValueError: as :func:`blend`, :func:`soft_labels` and :func:`reference_advantage`.
    """
    key_N, decided_N = turns.state_actions(visit_key) + side_N.astype(np.uint64), turns.decided_N
    if shaping == "blend":
        advantage_N = reference_advantage(value_N, turns.reward_E, turns.starts_E, gamma=gamma)
        return blend(q_N, decided_statistics(key_N, advantage_N, decided_N).q_N, alpha=alpha)
    signed_N = 2 * returns(turns, gamma=gamma, outcome="signed") - 1
    shaped_N = potential_shaped(signed_N, value_N, turns.starts_E, gamma=gamma)
    mean_N = decided_statistics(key_N, shaped_N, decided_N).q_N[decided_N]
    _, first, back = np.unique(key_N[decided_N], return_index=True, return_inverse=True)
    soft_N = q_N.copy()
    soft_N[decided_N] = soft_labels(mean_N[first])[back]
    return soft_N


def reference_advantage(
    value_N: np.ndarray, outcome_E: np.ndarray, starts_E: np.ndarray, *, gamma: float
) -> np.ndarray:
    """float64 [N]: A^μ(s_t, a_t) = γ V^μ(s_{t+1}) − V^μ(s_t), and R − V^μ(s_t) at an episode's last turn.

    ``value_N`` is V^μ(s_t) in the units of ``outcome_E`` (R ∈ {0,1}: a chance of success, discounted by γ a turn as
    Q is, so that V^μ(s_{T−1}) estimates R itself). The world is deterministic, so s_{t+1} stands for Q^μ(s_t, a_t).

    Raises:
        ValueError: ``gamma`` outside (0, 1] or shapes that do not fit.
    """
    _check(value_N, outcome_E, starts_E, gamma)
    reached = gamma * np.append(value_N[1:], 0.0)
    reached[_last(starts_E, len(value_N))] = outcome_E
    return reached - value_N


def blend(q_N: np.ndarray, advantage_N: np.ndarray, *, alpha: float) -> np.ndarray:
    """float64 [N] in [0,1]: (1−α) Q̂ + α (A^μ + 1)/2.

    A^μ lies in [−1, 1] where Q̂ lies in [0, 1]; it is mapped so that α = 1 is a label too and BCE stays defined. The
    paper's α is 0.5.

    Raises:
        ValueError: ``alpha``, a label or an advantage outside its range, or two lengths.
    """
    if not 0 <= alpha <= 1:
        raise ValueError(f"shaping.alpha: {alpha} is not in [0, 1]")
    if q_N.shape != advantage_N.shape:
        raise ValueError(f"shaping: {len(q_N)} labels and {len(advantage_N)} advantages")
    for name, value, low in (("labels", q_N, 0), ("advantages", advantage_N, -1)):
        if value.size and not (value.min() >= low and value.max() <= 1):
            raise ValueError(f"shaping: {name} between {value.min()} and {value.max()}, not in [{low}, 1]")
    return (1 - alpha) * q_N + alpha * (advantage_N + 1) / 2


def potential_shaped(return_N: np.ndarray, value_N: np.ndarray, starts_E: np.ndarray, *, gamma: float) -> np.ndarray:
    """float64 [N]: the reference code's q = G_t + γ V^μ(s_{t+1}) − V^μ(s_t), and G_t alone at the last turn.

    ``return_N`` is the discounted outcome in {−1, +1} units: G_t = γ^{T−1−t}·R, 2x − 1 of
    :func:`agentprm_core.credit.monte_carlo.returns`. The reference code has γ^t·R,
    which trusts the deciding turn least.

    Raises:
        ValueError: ``gamma`` outside (0, 1] or shapes that do not fit.
    """
    _check(value_N, starts_E, starts_E, gamma)
    potential = gamma * np.append(value_N[1:], 0.0) - value_N
    potential[_last(starts_E, len(value_N))] = 0.0
    return return_N + potential


def soft_labels(q_K: np.ndarray) -> np.ndarray:
    """float64 [K] in (0,1): σ((q − mean) · 3 / IQR) over K (s,a) keys (not visits), as the reference code squashes q.

    Raises:
        DataError: fewer than two keys, or an interquartile range of 0: such a q says nothing.
    """
    if q_K.size < 2:
        raise DataError(f"shaping: {q_K.size} keys are too few to squash; {_REMEDY}")
    low, high = np.percentile(q_K, [25, 75])
    if low == high:
        raise DataError(
            f"shaping: the middle half of {q_K.size} shaped values is {low} throughout, nothing to squash; {_REMEDY}"
        )
    return 1 / (1 + np.exp(-(q_K - q_K.mean()) * STEEPNESS / (high - low)))


def _last(starts_E: np.ndarray, turns: int) -> np.ndarray:
    return np.append(starts_E[1:], turns) - 1


def _check(value_N: np.ndarray, outcome_E: np.ndarray, starts_E: np.ndarray, gamma: float) -> None:
    if not 0 < gamma <= 1:
        raise ValueError(f"shaping.gamma: {gamma} is not in (0, 1]")
    if len(outcome_E) != len(starts_E) or not len(starts_E) or starts_E[-1] >= len(value_N):
        raise ValueError(
            f"shaping: {len(value_N)} values, {len(starts_E)} starts and {len(outcome_E)} outcomes do not fit together"
        )
