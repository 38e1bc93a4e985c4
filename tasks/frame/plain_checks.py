"""What became of an expectation where Great Expectations is not installed, such as on a machine lent for minutes.

The six kinds that :mod:`agentprm_core.expectations` makes are decided as Great Expectations decides them, and told in
the same words. A missing value, or one that is no number, is left out by all of them but the first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from agentprm_core.expectations import Check, Expectation


@dataclass(frozen=True)
class Decided:
    """An expectation, decided."""

    success: bool
    observed: str
    """The value seen, or the number of rows that broke it."""
    rows: tuple[str, ...]
    """The rows that broke it, by their values in the columns that it is about and in those that name a row."""


def decided(check: Check, expected: Expectation, most_rows: int) -> Decided:
    """Of the rows that broke it the first ``most_rows`` are named. Raises KeyError for a kind that is not known."""
    frame = check.frame.to_pandas()
    if expected.type == "ExpectColumnMeanToBeBetween":
        mean = float(frame[expected.arguments["column"]].mean())
        told = "not a number" if np.isnan(mean) else f"{mean:.4g}"
        return Decided(bool(_within(np.array([mean]), expected.arguments)[0]), told, ())
    bad = _BROKEN[expected.type](frame, expected.arguments)
    columns = [*_columns(expected.arguments), *check.index]
    named = frame.loc[bad, list(dict.fromkeys(columns))].head(most_rows).to_dict("records")
    rows = tuple(", ".join(f"{name}={value}" for name, value in row.items()) for row in named)
    return Decided(not bad.any(), f"{int(bad.sum())} of {len(frame)} rows", rows)


def snake(kind: str) -> str:
    """``ExpectColumnValuesToBeUnique`` → ``expect_column_values_to_be_unique``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind).lower()


def _columns(arguments: Mapping) -> list[str]:
    return arguments["column_list"] if "column_list" in arguments else [arguments["column"]]


def _missing(frame: pd.DataFrame, arguments: Mapping) -> np.ndarray:
    return frame[arguments["column"]].isna().to_numpy()


def _twice(frame: pd.DataFrame, arguments: Mapping) -> np.ndarray:
    columns = _columns(arguments)
    nothing = frame[columns].isna().all(axis=1)
    return (frame.duplicated(columns, keep=False) & ~nothing).to_numpy()


def _another(frame: pd.DataFrame, arguments: Mapping) -> np.ndarray:
    values = frame[arguments["column"]]
    return (~values.isin(arguments["value_set"]) & values.notna()).to_numpy()


def _outside(frame: pd.DataFrame, arguments: Mapping) -> np.ndarray:
    values = frame[arguments["column"]]
    there = values.notna().to_numpy()
    return there & ~_within(values.where(there, 0).to_numpy(), arguments)


def _within(values: np.ndarray, arguments: Mapping) -> np.ndarray:
    low, high = arguments["min_value"], arguments["max_value"]
    good = ~np.isnan(values.astype(np.float64))
    if low is not None:
        good &= values > low if arguments["strict_min"] else values >= low
    if high is not None:
        good &= values < high if arguments.get("strict_max") else values <= high
    return good


_BROKEN = {
    "ExpectColumnValuesToNotBeNull": _missing,
    "ExpectColumnValuesToBeUnique": _twice,
    "ExpectCompoundColumnsToBeUnique": _twice,
    "ExpectColumnValuesToBeInSet": _another,
    "ExpectColumnValuesToBeBetween": _outside,
}
"""Kind → (frame, arguments) → bool [rows], where it does not hold."""
