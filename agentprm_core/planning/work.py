"""Floating-point operations of reading and of training, by the usual count: two a parameter and token, and attention.

    read(n) = 2 M n + 2 L H D n²        M: parameters of the layers' matrices; n tokens of one episode
    train   = 3 read                    all weights (backward costs twice the forward pass)
            = 2 read                    an adapter: gradients of the base's weights are not computed
            + 1 read                    with gradient checkpointing

The output's 2 W V are added for each token whose successor is predicted.
"""

from __future__ import annotations

from agentprm_core.planning.memory import Training
from agentprm_core.planning.shapes import ModelShape


def reading_flops(shape: ModelShape, tokens: float, length: float, predicted: float = 0.0) -> float:
    """Of ``tokens`` in episodes of ``length``, of which ``predicted`` have the output computed."""
    attention = 2 * shape.layers * shape.heads * shape.head * length
    return tokens * (2 * shape.matrices + attention) + predicted * 2 * shape.width * shape.vocabulary


def training_flops(shape: ModelShape, how: Training, tokens: float, length: float, predicted: float) -> float:
    """Of one pass over ``tokens``, forward and backward."""
    times = (2 if how.rank else 3) + how.checkpointing
    return times * reading_flops(shape, tokens, length, predicted)
