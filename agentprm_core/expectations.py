"""What is expected of a dataset, as plain data: a frame, and expectations by Great Expectations' names.

Whoever makes a dataset says here what must hold of it. The gates of the pipeline (:mod:`tasks.frame.gates`) ask.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Expectation:
    """One of Great Expectations' expectations by its class name, and its arguments."""

    type: str
    arguments: dict
    why: str
    """What it means in the words of the data, for the error and the table."""
    severity: Literal["critical", "warning"] = "critical"
    """Whether data that does not meet it is refused, or only spoken of."""


@dataclass(frozen=True, slots=True)
class Check:
    """A frame and all that is expected of it."""

    name: str
    frame: pa.Table
    index: tuple[str, ...]
    """The columns that name a row."""
    expectations: tuple[Expectation, ...]


def known(column: str, why: str) -> Expectation:
    """No value is missing or NaN: every other expectation passes over those."""
    return Expectation("ExpectColumnValuesToNotBeNull", {"column": column}, why)


def unique(column: str, why: str) -> Expectation:
    """No value twice."""
    return Expectation("ExpectColumnValuesToBeUnique", {"column": column}, why)


def unique_together(columns: Iterable[str], why: str) -> Expectation:
    """No row twice in these columns."""
    return Expectation("ExpectCompoundColumnsToBeUnique", {"column_list": list(columns)}, why)


def one_of(column: str, values: Iterable, why: str) -> Expectation:
    """Every value is one of ``values``."""
    return Expectation("ExpectColumnValuesToBeInSet", {"column": column, "value_set": list(values)}, why)


def between(column: str, low: float | None, high: float | None, why: str, strict: bool = False) -> Expectation:
    """Every value lies between; ``strict``: above ``low``, not at it."""
    bounds = {"min_value": low, "max_value": high, "strict_min": strict}
    return Expectation("ExpectColumnValuesToBeBetween", {"column": column, **bounds}, why)


def mean_between(column: str, low: float | None, high: float | None, why: str, strict: bool = False) -> Expectation:
    """The column's mean lies between; ``strict``: not at either end."""
    bounds = {"min_value": low, "max_value": high, "strict_min": strict, "strict_max": strict}
    return Expectation("ExpectColumnMeanToBeBetween", {"column": column, **bounds}, why)
