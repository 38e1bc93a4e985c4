"""Ranges of parameters, said once beside the parameter: ``gamma: Annotated[float, Range(gt=0, le=1)]``.

Configurations are frozen dataclasses of plain values. Whoever reads them from a file (:mod:`tasks.frame.params`) turns
the ranges into checks with messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated


@dataclass(frozen=True, slots=True)
class Range:
    """What a number may be: at least, above, at most, below."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None


LARGEST_SEED = 2**32 - 1
"""That NumPy's generators take."""
Count = Annotated[int, Range(ge=1)]
CountOrNone = Annotated[int, Range(ge=0)]
Seed = Annotated[int, Range(ge=0, le=LARGEST_SEED)]
Share = Annotated[float, Range(ge=0, lt=1)]
ShareOrAll = Annotated[float, Range(ge=0, le=1)]
Discount = Annotated[float, Range(gt=0, le=1)]
LearningRate = Annotated[float, Range(gt=0, lt=1)]
Positive = Annotated[float, Range(gt=0)]
NotNegative = Annotated[float, Range(ge=0)]
Temperature = Annotated[float, Range(gt=0, le=10)]
Turns = Annotated[int, Range(ge=1, le=200)]
