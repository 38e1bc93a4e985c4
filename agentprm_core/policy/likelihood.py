"""The one likelihood: how probable a token, and an action, was to the model that read what came before.

A PRM adds it to its score (:mod:`agentprm_core.prm.model`): in training on packed trees and in search over cached
branches (:mod:`agentprm_core.search.scorer`). Through the transposed embedding, so for models whose embedding is also
their output.

Shapes: ``N`` places read, ``W`` width, ``V`` vocabulary, ``P`` tokens, ``M`` actions.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F


def token_nll(hidden_PW: torch.Tensor, embedding_VW: torch.Tensor, ids_P: torch.Tensor) -> torch.Tensor:
    """(P,) nats, float32: −log of the probability of each token after the place with this hidden state."""
    return F.cross_entropy(F.linear(hidden_PW.to(embedding_VW.dtype), embedding_VW).float(), ids_P, reduction="none")


def action_log_likelihood(
    hidden_NW: torch.Tensor,
    embedding_VW: torch.Tensor,
    ids_N: torch.Tensor,
    parent_N: torch.Tensor,
    end_M: torch.Tensor,
    span_M: torch.Tensor,
) -> torch.Tensor:
    """(M,) nats, float32: log π(a | s) of actions that are the ``span_M`` places up to and with ``end_M``.

    ``ids_N`` and ``parent_N`` are each place's token and the place that it is predicted from.
    """
    action_P = torch.repeat_interleave(torch.arange(len(end_M), device=end_M.device), span_M)
    within_P = torch.arange(len(action_P), device=end_M.device) - (span_M.cumsum(0) - span_M)[action_P]
    token_P = (end_M - span_M + 1)[action_P] + within_P
    nll_P = token_nll(hidden_NW[parent_N[token_P]], embedding_VW, ids_N[token_P])
    return nll_P.new_zeros(len(end_M)).index_add(0, action_P, -nll_P)
