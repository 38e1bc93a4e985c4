"""KL(π ‖ π_{i−1}) of what the policy says, exactly: over all that may come next at the tokens of actions.

    KL(π(·|s) ‖ π_{i−1}(·|s)) = E_{a~π} Σ_l Σ_v π(v | s, a_<l) [log π(v | s, a_<l) − log π_{i−1}(v | s, a_<l)]

by the chain rule, so the mean over drawn actions of their tokens' sums errs only by which actions were drawn. The usual
estimate from the drawn tokens alone, r − 1 − log r with r = π_{i−1}/π (Schulman 2020), has no bound where π has come to
avoid a token: an action that training rejects makes it e^20 while the distributions differ by a nat.

Shapes: ``P`` action tokens, ``K`` ≤ P of them measured, ``V`` vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from agentprm_core.training.columns import C_co
from agentprm_core.training.packing import Batch

LOGITS_KEPT = 1 << 24
"""Of π_{i−1}, numbers a batch: all positions of a small vocabulary (64 MiB), a sample of them of a large one."""


@dataclass(frozen=True)
class ReferredBatch(Batch[C_co]):
    """A packed batch with what the reference says of P of its tokens."""

    reference: torch.Tensor
    """(P,) their log-probabilities, nats."""
    measured: torch.Tensor
    """(K,) those of the P at which the KL is measured."""
    reference_logits: torch.Tensor
    """(K, V) the reference's there."""


def token_kl(logits_KV: torch.Tensor, reference_KV: torch.Tensor) -> torch.Tensor:
    """(K,) KL of the next token's distribution to the reference's, nats. What neither can say has −inf in both."""
    log_p_KV = logits_KV.log_softmax(-1)
    ratio_KV = (log_p_KV - reference_KV.log_softmax(-1)).masked_fill(logits_KV.isneginf(), 0.0)
    return (log_p_KV.exp() * ratio_KV).sum(-1)


def measured(tokens: int, vocabulary: int) -> torch.Tensor:
    """(K,) which of P action tokens are measured: all, or as many as may be kept, drawn evenly."""
    most = max(1, LOGITS_KEPT // vocabulary)
    if tokens <= most:
        return torch.arange(tokens)
    return torch.from_numpy(np.sort(np.random.default_rng(tokens).choice(tokens, most, replace=False)))


def kl_sum(logits_PV: torch.Tensor, batch: ReferredBatch, times_P: torch.Tensor | None = None) -> torch.Tensor:
    """Σ over the batch's P action tokens of their KL to π_{i−1}, nats; from a sample of them, scaled up to all.

    ``times_P``: how often each counts.
    """
    at_K = batch.measured
    kl_K = token_kl(logits_PV[at_K], batch.reference_logits)
    counted = kl_K if times_P is None else kl_K * times_P[at_K]
    return len(logits_PV) / max(1, len(at_K)) * counted.sum()
