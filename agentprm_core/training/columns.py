"""What is known of each token of a training row, by kind of row: one dataclass a kind, one value a token a field.

In a row the fields are float32 arrays (L,), in a packed batch float32 tensors (N,). An objective says by type which it
reads: ``batch: Batch[SftColumns]``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np

Values = Any
"""float32, one a token: a NumPy array in a row, a tensor in a batch."""
C = TypeVar("C", bound="Columns")
C_co = TypeVar("C_co", bound="Columns", covariant=True)
"""Of what holds columns and is frozen: rows of a kind are rows of the kinds it extends."""


@dataclass(frozen=True)
class Columns:
    """Of rows that are only read: nothing."""

    @classmethod
    def names(cls) -> list[str]:
        return [field.name for field in fields(cls)]

    @classmethod
    def zeros(cls: type[C], tokens: int) -> C:
        """Columns of a row to be filled in."""
        return cls(**{name: np.zeros(tokens, np.float32) for name in cls.names()})


NOTHING = Columns()


@dataclass(frozen=True)
class TrainColumns(Columns):
    """Of rows that a trainer takes."""

    loss_weight: Values
    """How much the token counts: a step's loss is the sum of losses over the sum of these."""


@dataclass(frozen=True)
class ScoreColumns(Columns):
    """Of rows that a process reward model reads."""

    is_scored: Values
    """1 where a score is read: at an action's last token."""
    span: Values
    """There, how many tokens the action has."""


def joined(parts: Sequence[C]) -> C:
    """End to end, columns of one kind."""
    kind = type(parts[0])
    return kind(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in kind.names()})
