"""Advantages without a critic, from groups: GRPO's by trajectory, GiGPO's by anchor state (rivals of paper B).

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


def gigpo_advantages(turns: Turns, *, gamma: float, omega: float, visit_key: str = "state") -> np.ndarray:
    """float64 [N]: A^E + ω A^S, episode and step advantages (Feng et al. 2025, GiGPO, arXiv 2505.10978).

    A^E is :func:`grpo_advantages`. A^S compares what the group's episodes did in the same ("anchor") state: the return
    γ^{T−1−t}·R of the turn, standardised over all turns of the group in that state; 0 where a state came once.

    Raises:
        ValueError: ``gamma`` or ``visit_key`` out of range, ``omega`` negative.
    """
    if omega < 0:
        raise ValueError(f"method.omega: {omega} is negative")
    anchor_N = digest_pair(turns.states(visit_key), turns.game_N.astype(np.uint64))
    step_N = _standardised(anchor_N, returns(turns, gamma=gamma, outcome="binary"))
    return grpo_advantages(turns) + omega * step_N


def _standardised(group: np.ndarray, value: np.ndarray) -> np.ndarray:
    """(value − mean) / std within each group (population std); 0 in groups without spread."""
    _, group, size = np.unique(group, return_inverse=True, return_counts=True)
    centred = value - (np.bincount(group, weights=value) / size)[group]
    spread = np.sqrt(np.bincount(group, weights=centred**2) / size)[group]
    return np.divide(centred, spread, out=np.zeros_like(centred), where=spread > 1e-9)
