"""Policies side by side: each against the one before on the same games, searches against the policy's own play."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import pyarrow as pa

from agentprm_core.evaluate import paired_test, summary, wins

PLAIN = ("greedy", "sample")
"""How a policy plays alone, the one that searches are held against first."""


def compared(outcomes: pa.Table) -> list[dict]:
    """Rows of the iterations' table.

    ``paired`` is the test against the iteration before on the same games, or None. For searches ``over_policy`` is the
    test against the policy's own play, ``policy_decoding``: greedy, or sampled where it was not played greedily. Both
    are None for the other rows, and where neither was played.
    """
    rows = summary(outcomes)
    for row in rows:
        same = {name: row[name] for name in ("split", "constrained")}
        won = wins(outcomes, iteration=row["iteration"], decoding=row["decoding"], **same)
        before = wins(outcomes, iteration=row["iteration"] - 1, decoding=row["decoding"], **same)
        row["paired"] = asdict(paired_test(before, won)) if before else None
        row["over_policy"] = row["policy_decoding"] = None
        if row["decoding"] in PLAIN:
            continue
        for plain in PLAIN:
            if alone := wins(outcomes, iteration=row["iteration"], decoding=plain, **same):
                row |= {"over_policy": asdict(paired_test(alone, won)), "policy_decoding": plain}
                break
    return rows


def deciding(rows: Sequence[dict], decoding: str) -> list[dict]:
    """The rows that the champion is chosen by: this way of playing, on ``unseen`` where there are such games."""
    splits = {row["split"] for row in rows}
    split = "unseen" if "unseen" in splits else "seen"
    return [row for row in rows if row["split"] == split and row["decoding"] == decoding]


def best(rows: Sequence[dict]) -> int:
    """The iteration with the highest success; the earliest of equals."""
    return max(rows, key=lambda row: (row["success"], -row["iteration"]))["iteration"]
