"""Which stages run side by side."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from flows.dvc_join import StageFailed, StageRun
from flows.graph import GraphStage
from flows.ready import run_ready

DIAMOND = [
    GraphStage("a", (), ()),
    GraphStage("b", ("a",), ()),
    GraphStage("c", ("a",), ()),
    GraphStage("d", ("b", "c"), ()),
]


def run_of(stage: GraphStage) -> StageRun:
    return StageRun(stage.name, "Completed", 0.0, 0.0)


@pytest.mark.parametrize("at_once", [1, 2])
def test_a_stage_runs_after_all_it_needs_and_beside_what_it_does_not(at_once: int) -> None:
    running, most, lock, ended = set[str](), [set()], threading.Lock(), list[str]()
    both = threading.Event()

    def play(stage: GraphStage) -> StageRun:
        with lock:
            running.add(stage.name)
            most[0] = max(most[0], set(running), key=len)
            if len(running) == 2:
                both.set()
        if at_once == 2 and stage.name in "bc":
            assert both.wait(10)
        with lock:
            running.discard(stage.name)
        return run_of(stage)

    with ThreadPoolExecutor() as pool:
        runs = run_ready(DIAMOND, lambda s: pool.submit(play, s), lambda run: ended.append(run.stage), at_once=at_once)
    assert len(most[0]) == at_once
    assert [run.stage for run in runs] == ended
    assert (ended[0], ended[-1], len(ended)) == ("a", "d", 4)
    assert at_once == 2 or ended == ["a", "b", "c", "d"]


def test_after_a_failure_what_runs_ends_and_nothing_starts() -> None:
    started, slow = list[str](), Future()

    def start(stage: GraphStage) -> Future:
        started.append(stage.name)
        future = Future()
        if stage.name == "a":
            future.set_result(run_of(stage))
        elif stage.name == "b":
            future.set_exception(StageFailed("b broke"))
            threading.Timer(0.1, slow.set_result, [run_of(DIAMOND[2])]).start()
        else:
            return slow
        return future

    ended = list[str]()
    with pytest.raises(StageFailed, match="b broke"):
        run_ready(DIAMOND, start, lambda run: ended.append(run.stage), at_once=2)
    assert (started, ended) == (["a", "b", "c"], ["a", "c"])
