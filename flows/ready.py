"""Stages that are ready run at once: each starts when all it needs has ended, as many side by side as are allowed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from queue import SimpleQueue

from prefect.futures import PrefectFuture

from flows.dvc_join import StageRun, end_all
from flows.graph import GraphStage


def run_ready(
    stages: Sequence[GraphStage],
    start: Callable[[GraphStage], PrefectFuture],
    ended: Callable[[StageRun], object],
    *,
    at_once: int,
) -> list[StageRun]:
    """Bring ``stages`` up to date; of those that are ready the first in order is started first.

    ``start`` submits a stage. ``ended`` is called in this thread with what became of it, one at a time. After the first
    failure no stage is started; those that run are waited for, then it is raised. Cancelled, all of them are ended.
    """
    waiting, finished = list(stages), SimpleQueue[str]()
    outside = {needed for stage in stages for needed in stage.needs} - {stage.name for stage in stages}
    done, runs = set(outside), list[StageRun]()
    running: dict[str, PrefectFuture] = {}
    failure: BaseException | None = None
    try:
        while running or (waiting and failure is None):
            for stage in _ready(waiting, done)[: at_once - len(running)] if failure is None else ():
                waiting.remove(stage)
                running[stage.name] = future = start(stage)
                future.add_done_callback(lambda _, name=stage.name: finished.put(name))
            name = finished.get()
            try:
                run = running.pop(name).result()
                ended(run)
            except Exception as error:
                failure = failure or error
            else:
                runs.append(run)
                done.add(name)
    except BaseException:
        end_all()
        raise
    if failure is not None:
        raise failure
    return runs


def _ready(waiting: Sequence[GraphStage], done: set[str]) -> list[GraphStage]:
    return [stage for stage in waiting if done.issuperset(stage.needs)]
