"""Success against compute: how much less of it one scorer needs than another to reach the same success.

Paper B claims 8 times the compute efficiency of its rivals and leaves open how that is measured. Here: of two curves of
(compute, success) in one kind of search, the compute at which the rival is at its best over the compute at which this
one first reaches that success, read between measured points on a logarithmic scale of compute.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

Curve = Iterable[tuple[float, float]]
"""(compute a game, success), in any order; of two points at one compute the better counts."""


def compute_to_reach(curve: Curve, success: float) -> float | None:
    """The least compute at which the curve has this success; None where it never does.

    Raises ValueError for compute that is not positive.
    """
    best: dict[float, float] = {}
    for compute, reached in curve:
        best[compute] = max(reached, best.get(compute, reached))
    before = None
    for compute, reached in sorted(best.items()):
        if compute <= 0:
            raise ValueError(f"a curve needs positive amounts of compute, not {compute}")
        if reached >= success:
            if before is None:
                return compute
            share = (success - before[1]) / (reached - before[1])
            return math.exp((1 - share) * math.log(before[0]) + share * math.log(compute))
        before = (compute, reached)
    return None


def efficiency(curve: Curve, rival: Curve) -> dict:
    """How ``curve`` stands to ``rival`` at the rival's best.

    Returns:
        ``rival_best``, the least ``rival_compute`` at which the rival has it, the ``compute`` at which ``curve`` does,
        and ``times``, the first over the second. The last two are None where ``curve`` never does.
    """
    best = max(success for _, success in rival)
    at, needed = compute_to_reach(rival, best), compute_to_reach(curve, best)
    assert at is not None, "the rival reaches its own best"
    times = None if needed is None else at / needed
    return {"rival_best": best, "rival_compute": at, "compute": needed, "times": times}
