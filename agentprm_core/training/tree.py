"""Trees of episodes: the episode once as the trunk, and other actions at its turns as branches.

How a branch sees its trunk is :mod:`agentprm_core.training.attention`'s business. Shapes: ``P`` tokens, ``J`` branches.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from agentprm_core.training.columns import C, joined
from agentprm_core.training.packing import Row


def tree_row(trunk: Sequence[int], columns: C, branches: Sequence[tuple[int, Sequence[int], C]]) -> Row[C]:
    """One row of a trunk with its columns and branches ``(at, tokens, columns)``.

    Raises:
        ValueError: a branch that is empty, or continues nothing or more than the trunk.
    """
    for at, tokens, _ in branches:
        if not tokens or not 0 < at <= len(trunk):
            raise ValueError(f"a branch of {len(tokens)} tokens at {at} of a trunk of {len(trunk)}")
    ids = np.concatenate([np.asarray(part, dtype=np.int32) for part in (trunk, *(t for _, t, _ in branches))])
    whole = joined([columns, *(own for _, _, own in branches)])
    return Row(ids, whole, tuple((at, len(tokens)) for at, tokens, _ in branches))


def branch_sums(values_P: torch.Tensor, branch_P: torch.Tensor, branches: int) -> torch.Tensor:
    """(J,) sums of the values of each branch's tokens; ``branch_P`` is ≥ 0."""
    return values_P.new_zeros(branches).index_add(0, branch_P, values_P)
