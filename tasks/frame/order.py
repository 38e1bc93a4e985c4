"""The stages of a campaign, as DVC names them, each after what it reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tasks.frame.sections import Iteration, Params

ONCE = ("games", "demos", "sft")
"""Stages that are run once: those of iteration 0."""
CRITIC = ("rollout", "label", "prm")
LOOP = (*CRITIC, "collect", "policy")


def stages_of(iteration: int) -> list[str]:
    """The stages that made and measured this policy."""
    made = [f"{name}@{iteration}" for name in LOOP] if iteration else list(ONCE)
    return [*made, f"evaluate@{iteration}"]


def behind(iterations: Mapping[str, Iteration], policy: int, prm: int | None = None) -> list[str]:
    """All stages that this policy is the outcome of, from the games on, each once. With ``prm`` also those that this
    PRM is the outcome of."""
    stages = list(ONCE)
    if policy:
        stages = behind(iterations, iterations[str(policy)].prev) + [f"{name}@{policy}" for name in LOOP]
    if prm is not None:
        stages += behind(iterations, iterations[str(prm)].prev) + [f"{name}@{prm}" for name in CRITIC]
    return list(dict.fromkeys(stages))


def all_stages(params: Params) -> Iterator[str]:
    """Every stage of these parameters: policies first, then what measures and compares them."""
    yield from ONCE
    for iteration in params.iterations:
        yield from (f"{name}@{iteration}" for name in LOOP)
    yield from (f"evaluate@{policy}" for policy in params.policies)
    yield "compare"
