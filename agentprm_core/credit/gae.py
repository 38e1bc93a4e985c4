"""Promise and progress: targets by temporal differences and GAE from the model's own scores (paper B §3.3).

Shapes: B episodes, T turns of the longest, padded on the right.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class GaeTargets:
    """What the PRM is to learn. All [B, T], zero (False) past an episode's end, no gradient."""

    q_BT: torch.Tensor
    """Promise: the target Q̂_t of M_t."""
    advantage_BT: torch.Tensor
    """Progress: the target Â_t of M_t − M_{t−1}."""
    before_BT: torch.Tensor
    """M_{t−1}, with 0 before the first turn."""
    mask_BT: torch.Tensor
    """bool, whether the turn exists."""


def gae_targets(
    values_BT: torch.Tensor,
    lengths_B: torch.Tensor,
    outcomes_B: torch.Tensor,
    *,
    gamma: float,
    gae_lambda: float,
) -> GaeTargets:
    """TD residuals, generalised advantages and targets of whole episodes (paper B §3.3).

        δ_t = γ M_t − M_{t−1}  for t < T−1,     δ_{T−1} = r − M_{T−2}
        Â_t = Σ_k (γλ)^k δ_{t+k}
        Q̂_t = Â_t + M_{t−1},                     Q̂_{T−1} = r

    ``values_BT`` holds M_t = Q_φ(s_t, a_t), the score *after* the action of turn t is read, in the outcome's units;
    ``outcomes_B`` is r. The paper leaves M before the first turn open: here it is 0. Another value would move Â_0
    alone, by −M_{−1}: Q̂ does not depend on it.

    Closed form: Q̂_t = (1−λ) γ Σ_{k<T−1−t} (γλ)^k M_{t+k} + (γλ)^{T−1−t} r. So λ = 1 gives the discounted outcome, and
    λ = 0 gives γ M_t before the last turn, which teaches nothing but that turn. The sum starts at M_t itself: for
    γ = 1 (the paper's derivation) Q̂_t = M_t + λ (G_t − M_t), a step towards the usual λ-return G_t. For γ < 1 the
    targets' fixed point is Q under the smaller discount :func:`effective_discount`.

    Raises:
        ValueError: shapes that do not fit, a length outside 1 … T, ``gamma`` outside (0, 1] or
            ``gae_lambda`` outside [0, 1].
    """
    _check(values_BT, lengths_B, outcomes_B, gamma, gae_lambda)
    values_BT = values_BT.detach()
    steps = values_BT.shape[1]
    turn_T = torch.arange(steps, device=values_BT.device)
    mask_BT = turn_T < lengths_B[:, None]
    before_BT = torch.cat([torch.zeros_like(values_BT[:, :1]), values_BT[:, :-1]], 1)

    last_BT = turn_T == lengths_B[:, None] - 1
    reached_BT = torch.where(last_BT, outcomes_B[:, None].to(values_BT), gamma * values_BT)
    delta_BT = (reached_BT - before_BT) * mask_BT
    advantage_BT = torch.zeros_like(values_BT)
    running_B = torch.zeros_like(values_BT[:, 0])
    for t in reversed(range(steps)):  # padding holds zeros, so every episode's sum starts at its own end
        running_B = delta_BT[:, t] + gamma * gae_lambda * running_B
        advantage_BT[:, t] = running_B
    q_BT = (advantage_BT + before_BT) * mask_BT
    return GaeTargets(q_BT, advantage_BT, before_BT * mask_BT, mask_BT)


def effective_discount(gamma: float, gae_lambda: float) -> float:
    """γλ / (1 − γ(1−λ)): the discount under which Q^π reproduces itself through :func:`gae_targets`.

    With M_t = g·E[M_{t+1}] the closed form gives E[Q̂_t] = γ(1−λ) M_t + (γλ/g) M_t, which is M_t for this g. It is γ
    for γ = 1 or λ = 1, 0.9475 for γ = λ = 0.95, and 0 for λ = 0.
    """
    return gamma * gae_lambda / (1 - gamma * (1 - gae_lambda)) if gamma < 1 else 1.0


def _check(values_BT, lengths_B, outcomes_B, gamma, gae_lambda) -> None:
    if values_BT.ndim != 2 or 0 in values_BT.shape:
        raise ValueError(f"gae: values must be [episodes, turns] and not empty, not {tuple(values_BT.shape)}")
    rows = values_BT.shape[:1]
    for name, value in (("lengths", lengths_B), ("outcomes", outcomes_B)):
        if value.shape != rows:
            raise ValueError(f"gae: {name} must be [{rows[0]}], one an episode, not {list(value.shape)}")
    if lengths_B.min() < 1 or lengths_B.max() > values_BT.shape[1]:
        raise ValueError(f"gae: lengths must lie in 1 … {values_BT.shape[1]}")
    if not 0 < gamma <= 1:
        raise ValueError(f"gae: gamma {gamma} is not in (0, 1]")
    if not 0 <= gae_lambda <= 1:
        raise ValueError(f"gae: gae_lambda {gae_lambda} is not in [0, 1]")
