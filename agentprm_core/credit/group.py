"""Advantages without a critic, from groups: GRPO's and LOOP's by trajectory, GiGPO's by anchor state, iStar's by
implicit rewards (rivals of paper B).

A group is the G episodes of one game.
"""

from __future__ import annotations

import numpy as np

from agentprm_core.credit.monte_carlo import returns
from agentprm_core.credit.turns import Turns, digest_pair


def grpo_advantages(turns: Turns) -> np.ndarray:
    """float64 [N]: (R − mean R) / std R over the episodes of the turn's game, the same for all its turns.

    R ∈ [0, 1]. Where all episodes of a game end alike nothing is learnt from it: 0 (Shao et al. 2024, eq. for outcome
    supervision).
    """
    group_E = turns.game_N[turns.starts_E]
    return turns.per_turn(_standardised(group_E, turns.reward_E))


def loop_advantages(turns: Turns) -> np.ndarray:
    """float64 [N]: R minus the mean R of the game's other episodes, the same for all turns of an episode.

    A_k = G/(G−1) (R_k − mean R), the leave-one-out estimate (Chen et al. 2025, LOOP, arXiv 2502.01600). They sum to 0
    over a game's episodes. An episode that is its game's only one has nothing to be compared with: 0.
    """
    group_E = turns.game_N[turns.starts_E]
    centred_E, size_E = _centred(group_E, turns.reward_E)
    return turns.per_turn(centred_E * size_E / np.maximum(size_E - 1, 1))


def istar_advantages(turns: Turns, reward_N: np.ndarray, *, alpha: float) -> np.ndarray:
    """float64 [N]: A^E + α A^S (Liu et al. 2025, iStar, arXiv 2509.19199).

    A^E is :func:`grpo_advantages`. A^S is the turn's implicit reward (``reward_N``), standardised over all turns of its
    game that the policy decided; 0 at a turn that was replayed to where an episode starts.
    """
    decided_N = turns.decided_N
    step_N = np.zeros(len(reward_N))
    step_N[decided_N] = _standardised(turns.game_N[decided_N], reward_N[decided_N])
    return grpo_advantages(turns) + alpha * step_N


def progress(turns: Turns, q_N: np.ndarray, *, gamma: float) -> np.ndarray:
    """float64 [N]: Q(s_t, a_t) − Q(s_{t−1}, a_{t−1}) / γ, how much better the turn made things; 0 at a first turn.

    Where the world is deterministic and pays at the end only, Q(s_{t−1}, a_{t−1}) is γ V(s_t), so this is the advantage
    Q − V of the turn (paper B §3.2, where γ = 1).
    """
    before_N = np.roll(q_N, 1)
    return np.where(turns.turn_N > 0, q_N - before_N / gamma, 0.0)


def gigpo_advantages(
    turns: Turns, *, gamma: float, omega: float, visit_key: str = "state", progress_N: np.ndarray | None = None
) -> np.ndarray:
    """float64 [N]: A^E + ω A^S, episode and step advantages (Feng et al. 2025, GiGPO, arXiv 2505.10978).

    A^E is :func:`grpo_advantages`. A^S compares what the group's episodes did in the same ("anchor") state: the return
    γ^{T−1−t}·R of the turn, standardised over all turns that the group decided in that state. Where a state came once
    there is nothing to compare: 0, or ``progress_N`` of the turn, standardised over all such turns of the group. At a
    turn that was replayed to where an episode starts it is 0.

    Raises:
        ValueError: ``gamma`` or ``visit_key`` out of range, ``omega`` negative.
    """
    if omega < 0:
        raise ValueError(f"method.omega: {omega} is negative")
    anchor_N = digest_pair(turns.states(visit_key), turns.game_N.astype(np.uint64))
    return_N, decided_N = returns(turns, gamma=gamma, outcome="binary"), turns.decided_N
    step_N = np.zeros(len(return_N))
    step_N[decided_N] = _standardised(anchor_N[decided_N], return_N[decided_N])
    if progress_N is not None:
        alone_N = anchors_alone(turns, visit_key)
        step_N[alone_N] = _standardised(turns.game_N[alone_N], progress_N[alone_N])
    return grpo_advantages(turns) + omega * step_N


def anchors_alone(turns: Turns, visit_key: str) -> np.ndarray:
    """bool [N]: whether the group decided this turn, and no other one in its state."""
    anchor_N = digest_pair(turns.states(visit_key), turns.game_N.astype(np.uint64))
    _, group = np.unique(anchor_N, return_inverse=True)
    decided = np.bincount(group, weights=turns.decided_N)
    return turns.decided_N & (decided[group] == 1)


def _standardised(group: np.ndarray, value: np.ndarray) -> np.ndarray:
    """(value − mean) / std within each group (population std); 0 in groups without spread."""
    centred, size = _centred(group, value)
    _, group = np.unique(group, return_inverse=True)
    spread = np.sqrt(np.bincount(group, weights=centred**2)[group] / size)
    return np.divide(centred, spread, out=np.zeros_like(centred), where=spread > 1e-9)


def _centred(group: np.ndarray, value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """value − mean within each group, and the size of each one's group."""
    _, group, size = np.unique(group, return_inverse=True, return_counts=True)
    return value - (np.bincount(group, weights=value) / size)[group], size[group]
