"""The one draw: what comes next, for every row of logits and every sample of it.

Playing (:mod:`agentprm_core.policy.sampler`) and proposing (:mod:`agentprm_core.improve.proposals`) draw here. Random
numbers are hashes of what is drawn for, so a draw is the same whatever is drawn beside it.

Shapes: ``R`` rows, ``V`` vocabulary, ``C`` tokens allowed of the row that has most, ``S`` samples of all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple, TypeGuard

import numpy as np
import torch

from agentprm_core.seeding import uniforms


class AllBut(NamedTuple):
    """The whole vocabulary without these tokens."""

    tokens: tuple[int, ...]


EVERYTHING = AllBut(())
Allowed = tuple[int, ...] | AllBut
"""What may come next: these tokens, or all but some."""


def draw(
    logits_RV: torch.Tensor,
    allowed_R: Sequence[Allowed],
    keys_R: Sequence[tuple[int, ...]],
    samples_R: Sequence[tuple[int, ...]],
    temperature: float,
) -> tuple[list[int], list[float]]:
    """For each row, and of each row for each of its samples: the token drawn and its log-probability at temperature 1
    among those allowed. The likeliest is drawn at temperature 0.

    ``keys_R``: what the row is drawn for, all of one length; a draw follows from it, the sample's number and the row.
    """
    logits, tokens_RC = _among(allowed_R, logits_RV)
    row_S = np.repeat(np.arange(len(samples_R)), [len(samples) for samples in samples_R])
    rows = torch.from_numpy(row_S).to(logits.device)
    if temperature == 0:
        picks = logits.argmax(-1)[rows]
    else:
        numbers = np.fromiter(chain.from_iterable(samples_R), np.int64, len(row_S))
        uniform = uniforms(np.column_stack((np.array(keys_R, dtype=np.int64)[row_S], numbers)))
        picks = _inverse_cdf(logits / temperature, rows, torch.from_numpy(uniform).to(logits.device))
    log_probs = logits[rows, picks] - logits.logsumexp(-1)[rows]
    tokens = picks if tokens_RC is None else tokens_RC[rows, picks]
    return tokens.tolist(), log_probs.tolist()


def _among(allowed_R: Sequence[Allowed], logits_RV: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The logits of what is allowed, and which tokens they are of; None where they are of the vocabulary."""
    if all(allowed is EVERYTHING for allowed in allowed_R):
        return logits_RV, None
    if _all_listed(allowed_R):
        return _listed(allowed_R, logits_RV)
    return among(allowed_R, logits_RV), None


def among(allowed_R: Sequence[Allowed], logits_RV: torch.Tensor) -> torch.Tensor:
    """(R, V): −inf where a token is not allowed."""
    forbidden = np.ones(logits_RV.shape, dtype=bool)
    for row, allowed in zip(forbidden, allowed_R):
        if isinstance(allowed, AllBut):
            row[:] = False
            row[list(allowed.tokens)] = True
        else:
            row[list(allowed)] = False
    return logits_RV.masked_fill(torch.from_numpy(forbidden).to(logits_RV.device), -torch.inf)


def _all_listed(allowed_R: Sequence[Allowed]) -> TypeGuard[Sequence[tuple[int, ...]]]:
    return not any(isinstance(allowed, AllBut) for allowed in allowed_R)


def _listed(tokens_R: Sequence[tuple[int, ...]], logits_RV: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The logits of each row's allowed tokens [R, C], padded with −inf to the row that has most, and those tokens."""
    counts = np.array([len(tokens) for tokens in tokens_R])
    present_RC = np.arange(counts.max()) < counts[:, None]
    index_RC = np.zeros(present_RC.shape, dtype=np.int64)
    index_RC[present_RC] = np.fromiter(chain.from_iterable(tokens_R), np.int64, int(counts.sum()))
    tokens_RC = torch.from_numpy(index_RC).to(logits_RV.device)
    absent_RC = torch.from_numpy(~present_RC).to(logits_RV.device)
    return logits_RV.gather(1, tokens_RC).masked_fill_(absent_RC, -torch.inf), tokens_RC


def _inverse_cdf(logits_RC: torch.Tensor, rows_S: torch.Tensor, uniform_S: torch.Tensor) -> torch.Tensor:
    """For each of ``rows_S``, the first index at which its row's cumulated probability exceeds ``uniform_S``."""
    # float64, so that no last entry is out of reach
    cdf = (logits_RC - logits_RC.amax(-1, keepdim=True)).exp_().cumsum(-1, dtype=torch.float64)[rows_S]
    sought = (uniform_S * cdf[:, -1])[:, None]
    return torch.searchsorted(cdf, sought, right=True)[:, 0].clamp_(max=logits_RC.shape[-1] - 1)
