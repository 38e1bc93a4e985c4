"""Tree attention: an episode once as the trunk, and other actions at its turns as branches, in one forward pass.

A branch continues the trunk's first ``at`` tokens: it sees those and itself, neither the rest of the trunk nor another
branch, and its positions go on from ``at``. So the scores, log-probabilities and gradients of a branch are those of the
row ``trunk[:at] + branch`` on its own, at the price of the branch's own tokens.

Shapes: ``B`` rows, ``L`` tokens of trunk and branches end to end, ``J`` branches of the row that has most, ``V``
vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from agentprm_core.training.packing import Row


def tree_row(
    trunk: Sequence[int],
    columns: Mapping[str, np.ndarray],
    branches: Sequence[tuple[int, Sequence[int], Mapping[str, np.ndarray]]],
) -> Row:
    """One row of a trunk with its columns and branches ``(at, tokens, columns)``.

    Raises:
        ValueError: a branch that is empty, or continues nothing or more than the trunk.
    """
    for at, tokens, _ in branches:
        if not tokens or not 0 < at <= len(trunk):
            raise ValueError(f"a branch of {len(tokens)} tokens at {at} of a trunk of {len(trunk)}")
    ids = np.concatenate([np.asarray(trunk, dtype=np.int32), *(np.asarray(t, dtype=np.int32) for _, t, _ in branches)])
    joined = {name: np.concatenate([first, *(c[name] for _, _, c in branches)]) for name, first in columns.items()}
    return Row(ids, joined, tuple((at, len(tokens)) for at, tokens, _ in branches))


def layout(rows: Sequence[tuple[int, Sequence[tuple[int, int]]]], length: int) -> dict[str, torch.Tensor]:
    """Where each token stands, for rows of ``(tokens, branches)`` padded to ``length``. All (B, L) int64:

    ``position_ids``; ``segment`` (0 trunk, j the j-th branch from 1, −1 padding); ``sees`` (how many of the trunk's
    tokens); ``parent`` (index of the token before it: the one it is predicted from).
    """
    shape = (len(rows), length)
    positions, sees, parents = (np.zeros(shape, dtype=np.int64) for _ in range(3))
    segments = np.full(shape, -1, dtype=np.int64)
    for b, (tokens, branches) in enumerate(rows):
        start = tokens - sum(count for _, count in branches)
        positions[b, :start] = np.arange(start)
        sees[b, :start] = np.arange(1, start + 1)
        parents[b, 1:start] = np.arange(start - 1)
        segments[b, :start] = 0
        for j, (at, count) in enumerate(branches, 1):
            own = slice(start, start + count)
            positions[b, own] = np.arange(at, at + count)
            sees[b, own] = at
            segments[b, own] = j
            parents[b, own] = np.arange(start - 1, start + count - 1)
            parents[b, start] = at - 1
            start += count
    arrays = {"position_ids": positions, "segment": segments, "sees": sees, "parent": parents}
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def tree_mask(segment_BL: torch.Tensor, sees_BL: torch.Tensor) -> torch.Tensor:
    """(B, 1, L, L) bool: whether query l sees key k. Padding sees only padding, so no row of it is empty."""
    index_L = torch.arange(segment_BL.shape[1], device=segment_BL.device)
    of_trunk_BLL = (segment_BL == 0)[:, None, :] & (index_L < sees_BL[:, :, None])
    of_own_BLL = (segment_BL[:, :, None] == segment_BL[:, None, :]) & (segment_BL != 0)[:, None, :]
    return (of_trunk_BLL | (of_own_BLL & (index_L[:, None] >= index_L)))[:, None]


def model_inputs(batch: dict[str, torch.Tensor]) -> dict:
    """What the model is called with: plain causal rows, or a tree."""
    inputs = {"input_ids": batch["input_ids"], "use_cache": False}
    if "segment" in batch:
        mask = tree_mask(batch["segment"], batch["sees"])
        inputs |= {"position_ids": batch["position_ids"], "attention_mask": mask}
    return inputs


def token_log_probs(logits_BLV: torch.Tensor, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """(B, L) float32 nats: log-probability of each token after its parent. The first token's means nothing."""
    ids_BL = batch["input_ids"]
    if "parent" not in batch:
        logits_BLV = logits_BLV[:, :-1].float()
        picked_BL = logits_BLV.gather(-1, ids_BL[:, 1:, None])[..., 0] - logits_BLV.logsumexp(-1)
        return torch.nn.functional.pad(picked_BL, (1, 0))
    parent_BL, logits_BLV = batch["parent"], logits_BLV.float()
    row_B1 = torch.arange(len(ids_BL), device=ids_BL.device)[:, None]
    return logits_BLV[row_B1, parent_BL, ids_BL] - logits_BLV.logsumexp(-1).gather(1, parent_BL)


def branch_sums(values_BL: torch.Tensor, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """(B, J) sums of ``values_BL`` over each branch's tokens, 0 where a row has no such branch."""
    segment_BL = batch["segment"]
    sums = values_BL.new_zeros(len(segment_BL), int(segment_BL.max()) + 1)
    return sums.scatter_add(1, segment_BL.clamp(min=0), torch.where(segment_BL > 0, values_BL, 0.0))[:, 1:]
