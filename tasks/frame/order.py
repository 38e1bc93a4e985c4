"""The stages of a campaign, as DVC names them, each after what it reads."""

from __future__ import annotations

from collections.abc import Iterator

from tasks.frame.sections import Params

ONCE = ("games", "demos", "sft")
"""Stages that are run once. Their time is iteration 0's, with its evaluation."""
LOOP = ("rollout", "label", "prm", "collect", "policy")


def stages_of(iteration: int) -> list[str]:
    """The stages that made and measured this policy."""
    made = [f"{name}@{iteration}" for name in LOOP] if iteration else list(ONCE)
    return [*made, f"evaluate@{iteration}"]


def all_stages(params: Params) -> Iterator[str]:
    """Every stage of these parameters: policies first, then what measures and compares them."""
    yield from ONCE
    for iteration in params.iterations:
        yield from (f"{name}@{iteration}" for name in LOOP)
    yield from (f"evaluate@{policy}" for policy in params.policies)
    yield "compare"
