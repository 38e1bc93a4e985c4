"""The stage graph, read from DVC: which stages there are, what each needs, and in which order they run.

``dvc.yaml`` is the only list of stages. A flow asks this module and never names a stage itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from dvc.repo import Repo
from dvc.repo.reproduce import get_active_graph, plan_repro


@dataclass(frozen=True, slots=True)
class GraphStage:
    """One stage of ``dvc.yaml``, addressed as DVC does (``rollout@1``)."""

    name: str
    needs: tuple[str, ...]
    """The stages whose outs it reads, sorted."""
    tags: tuple[str, ...]
    """``meta.tags`` of the stage: ``gpu`` marks one that uses an accelerator."""

    @property
    def iteration(self) -> int | None:
        """The number behind the ``@`` (``rollout@1`` is of iteration 1), or None for a stage of no iteration."""
        _, _, key = self.name.partition("@")
        return int(key) if key.isdecimal() else None


@dataclass(frozen=True, slots=True)
class Step:
    """Stages that run one after another: those of one iteration, or (``iteration`` None) those of none."""

    iteration: int | None
    stages: tuple[GraphStage, ...]


def read_graph(root: Path) -> tuple[GraphStage, ...]:
    """Every stage of the DVC project at ``root``, in the order ``dvc repro`` would run them."""
    with Repo(str(root)) as repo:
        graph = get_active_graph(repo.index.graph)
        return tuple(
            GraphStage(
                name=stage.addressing,
                needs=tuple(sorted(needed.addressing for needed in graph.successors(stage))),
                tags=tuple((stage.meta or {}).get("tags", ())),
            )
            for stage in plan_repro(graph)
        )


def with_needs(stages: Iterable[GraphStage], number: int) -> tuple[GraphStage, ...]:
    """The stages of iteration ``number`` and all that they need, in the order of ``stages``.

    Raises ValueError naming the iterations there are when ``number`` is not one of them.
    """
    stages = tuple(stages)
    wanted = {stage.name for stage in stages if stage.iteration == number}
    if not wanted:
        numbers = sorted({stage.iteration for stage in stages if stage.iteration is not None})
        raise ValueError(f"iteration {number}: dvc.yaml has the iterations {', '.join(map(str, numbers)) or 'none'}")
    for stage in reversed(stages):  # in running order, so a need always stands before the stage that needs it
        if stage.name in wanted:
            wanted.update(stage.needs)
    return tuple(stage for stage in stages if stage.name in wanted)


def steps(stages: Iterable[GraphStage]) -> tuple[Step, ...]:
    """``stages`` as a campaign runs them: a stage after all it needs, and the stages of an iteration side by side.

    Stages of no iteration run as early as they can, then the lowest iteration. An iteration that has to wait for a
    stage outside it comes in two steps.
    """
    remaining, done, order = list(stages), set(), []
    while remaining:
        free = [stage for stage in remaining if done.issuperset(stage.needs)]
        current = order[-1].iteration if order else None
        stage = min(free, key=lambda stage: (stage.iteration != current, _rank(stage)))
        order.append(stage)
        done.add(stage.name)
        remaining.remove(stage)
    return tuple(Step(number, tuple(group)) for number, group in groupby(order, lambda stage: stage.iteration))


def _rank(stage: GraphStage) -> int:
    return -1 if stage.iteration is None else stage.iteration
