"""Advantages from a critic of states: temporal differences and GAE over turns (PPO).

The critic says V(s_t) before the action. :mod:`agentprm_core.credit.gae` is paper B's, whose M is read after it.
"""

from __future__ import annotations

import numpy as np

from agentprm_core.credit.turns import Turns


def state_gae(turns: Turns, value_N: np.ndarray, *, gamma: float, gae_lambda: float) -> tuple[np.ndarray, np.ndarray]:
    """(Â, target of V), float64 [N] each (Schulman et al. 2016, eq. 16; 2017, eq. 11).

        δ_t = γ V(s_{t+1}) − V(s_t) before the last turn,    δ_{T−1} = R − V(s_{T−1})
        Â_t = Σ_k (γλ)^k δ_{t+k},    target_t = Â_t + V(s_t)

    ``value_N`` is V(s_t) in the reward's units. An episode that ran out of turns ends like any other: the limit belongs
    to the task. λ = 1 gives the return minus V, whatever V is; λ = 0 the one-step difference.

    Raises:
        ValueError: not one value a turn.
    """
    if len(value_N) != len(turns.turn_N):
        raise ValueError(f"{len(value_N)} values for {len(turns.turn_N)} turns")
    lengths_E, advantage_N = turns.lengths_E, np.zeros(len(value_N))
    running_E, after_E = np.zeros(len(lengths_E)), turns.reward_E.copy()
    for t in reversed(range(lengths_E.max())):
        there_E = np.flatnonzero(lengths_E > t)
        row = turns.starts_E[there_E] + t
        last = lengths_E[there_E] == t + 1
        delta = after_E[there_E] * np.where(last, 1.0, gamma) - value_N[row]
        running_E[there_E] = delta + gamma * gae_lambda * running_E[there_E]
        advantage_N[row], after_E[there_E] = running_E[there_E], value_N[row]
    return advantage_N, advantage_N + value_N
