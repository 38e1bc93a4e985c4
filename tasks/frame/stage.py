"""The frame every stage shares: read and check the parameters, open the MLflow run, do the work, gate, write, report.

``python -m tasks.NAME [--iteration N]`` in the folder of dvc.yaml. Exit code 2 for parameters that cannot be used, 1
for data that cannot, both with a line that says what, where and what to do; a fault of the code ends in its traceback.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from agentprm_core.datasets import atomic_write
from agentprm_core.errors import EXPECTED, DataError, out_of_memory
from agentprm_core.expectations import Check
from agentprm_core.progress import watched_by
from tasks.frame import layout
from tasks.frame.clock import Clock, write_timing
from tasks.frame.gatekeeper import Gatekeeper
from tasks.frame.gates import Result, as_rows, sentence
from tasks.frame.memory import not_enough
from tasks.frame.params import ParamsError, load_params
from tasks.frame.sections import Params
from tasks.frame.tracking import Tracker, campaign_id


class StageError(DataError):
    """What a stage was given cannot be used. Says what, where and what to do."""


ENDED = ".ended"
"""Marks the scratch of a stage that has ended; the next stage takes it away."""


@dataclass(frozen=True)
class Stage:
    """One run of one stage: what it may know, and where it reports."""

    task: str
    number: int | None
    """The iteration; None of a stage that is run once a campaign."""
    params: Params
    clock: Clock
    tracker: Tracker
    gatekeeper: Gatekeeper | None
    passed: list[Result] = field(default_factory=list)
    """What its gates have seen so far."""

    @property
    def name(self) -> str:
        """As DVC addresses it: ``rollout@1``."""
        return self.task if self.number is None else f"{self.task}@{self.number}"

    @property
    def iteration(self) -> int:
        """Of a stage that is run once an iteration."""
        assert self.number is not None, f"{self.task} has no iteration"
        return self.number

    @property
    def campaign(self) -> str:
        """Its id, as in MLflow."""
        return campaign_id(self.params.as_dict())

    @property
    def slug(self) -> str:
        """The same as a file name: ``rollout-1``."""
        return self.name.replace("@", "-")

    @property
    def scratch(self) -> Path:
        """Space outside the outs that survives a kill: what a long stage resumes from."""
        return layout.SCRATCH / self.name

    @property
    def seed(self) -> int:
        """Of this stage: the campaign's, moved on by a thousand an iteration."""
        return self.params.seed + 1000 * (self.number or 0)

    @property
    def prev(self) -> int:
        """The iteration before this one, as params.yaml chains them."""
        return self.params.iterations[str(self.iteration)].prev

    def gate(self, checks: Sequence[Check]) -> None:
        """Let data pass, or raise :class:`tasks.frame.gates.GateError`. Comes before anything is written but the
        gate's results, ``data/gates/rollout-1.json``. Warnings are no part of these: what they compare with is no
        dependency of the stage."""
        assert self.gatekeeper is not None, "run_stage was not told that the stage is gated"
        with self.clock.lap("gates"):
            results = self.gatekeeper.run_gate(self.name, checks, self.passed)
        self.passed.extend(results)
        write_json(as_rows([one for one in self.passed if one.severity != "warning"]), layout.gates(self.slug))
        warnings = [sentence(one) for one in self.passed if not one.success]
        print(f"{self.name}: gate passed, {len(results)} expectations", flush=True)
        for one in results:
            if not one.success:
                print(f"{self.name}: warning: {sentence(one)}", flush=True)
        with self.clock.lap("tracking"):
            self.tracker.log_files(layout.gates(self.slug), folder="gates")
            moved = {one.column: float(one.observed) for one in self.passed if one.severity == "warning"}
            self.tracker.log_metrics({"gate": {"warnings": len(warnings)}, "drift": moved}, compared=False)
            self.tracker.tag("warnings", "; ".join(warnings) or "none")

    def read(self, *paths: Path) -> None:
        """Join the MLflow run to what the stage reads."""
        with self.clock.lap("tracking"):
            for path in paths:
                self.tracker.log_data(path, "input")

    def wrote(self, *paths: Path) -> None:
        """Join the MLflow run to what the stage wrote."""
        with self.clock.lap("tracking"):
            for path in paths:
                self.tracker.log_data(path, "output")

    def report(self, metrics: Mapping, *, of: str | None = None, on: Path | None = None) -> None:
        """The stage's figures: ``data/metrics/rollout-1.json`` for DVC, and MLflow. No clock among them. ``of``: the
        digest of the policy that they are about, ``on``: the data that it was measured on."""
        write_json(metrics, layout.metrics(self.slug))
        with self.clock.lap("tracking"):
            self.tracker.log_metrics({self.task: dict(metrics)}, of=of, on=on)
            self.tracker.log_figures(layout.metrics(self.slug))

    def report_training(self, metrics: Mapping, curve: list[Mapping]) -> None:
        """:meth:`report` of what a trainer returned: what the clock or a kill decided goes to MLflow alone."""
        transient = {name: metrics[name] for name in ("seconds", "resumed_from")}
        self.report({name: value for name, value in metrics.items() if name not in transient})
        with self.clock.lap("tracking"):
            self.tracker.log_metrics({"training": transient}, compared=False)
            self.tracker.log_curve(self.task, curve)

    def tracking(self) -> AbstractContextManager[None]:
        """``with stage.tracking(): stage.tracker.…`` books the time to orchestration."""
        return self.clock.lap("tracking")


def run_stage(
    task: str,
    work: Callable[[Stage], None],
    *,
    iterated: bool,
    gated: bool = False,
    arguments: Sequence[str] | None = None,
) -> None:
    """The ``main`` of every stage: parse, validate, track, do ``work``; ends the process unless all went well.

    ``iterated``: it takes ``--iteration``. ``gated``: it calls :meth:`Stage.gate`.
    """
    clock = Clock()
    iteration = _parse(task, work.__doc__, iterated, arguments)
    _require_one_process()
    params = _params(task, iteration)
    _seed(params.seed)
    gatekeeper = Gatekeeper() if gated else None
    with clock.lap("tracking"):
        tracker = Tracker(task, iteration, params.as_dict())
    stage = Stage(task, iteration, params, clock, tracker, gatekeeper)
    _sweep(stage.scratch)
    try:
        with watched_by(tracker.live), clock.working():
            work(stage)
    except BaseException as error:
        tracker.failed(error)
        if isinstance(error, EXPECTED):
            sys.exit(f"{stage.name}: {error}")
        if out_of_memory(error):
            sys.exit(f"{stage.name}: {not_enough(task, params.compute, error)}")
        raise
    finally:
        if gatekeeper:
            with clock.lap("gates"):
                gatekeeper.end()
    with clock.lap("tracking"):
        tracker.log_metrics(clock.report(), compared=False)
        tracker.end(campaign=task == "compare")
    if stage.scratch.exists():
        (stage.scratch / ENDED).touch()
    write_timing(stage.name, stage.campaign, clock.report())
    print(_closing_line(stage), flush=True)
    gc.freeze()  # else the interpreter looks through every module before it ends, for 1.5 seconds


def write_json(value: object, path: Path) -> None:
    """Whole or not at all; the same bytes for the same value."""
    with atomic_write(path) as aside:
        aside.write_text(json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n")


def read_json(path: Path) -> dict:
    return json.loads(path.read_text())


def _parse(task: str, doc: str | None, iterated: bool, arguments: Sequence[str] | None) -> int | None:
    parser = argparse.ArgumentParser(prog=f"python -m tasks.{task}", description=doc)
    if iterated:
        parser.add_argument("--iteration", type=int, required=True, help="as in params.yaml")
    return vars(parser.parse_args(arguments)).get("iteration")


def _require_one_process() -> None:
    """Of several that a launcher started, each would write the outs and an MLflow run: a stage starts its own."""
    processes = os.environ.get("WORLD_SIZE", "1")
    if processes != "1":
        said = "a stage is one process, which starts those it trains on itself: set compute.parallel in params.yaml"
        print(f"WORLD_SIZE: {processes} is not allowed: {said}", file=sys.stderr)
        sys.exit(2)


def _params(task: str, iteration: int | None) -> Params:
    try:
        params = load_params()
    except ParamsError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    known = params.policies if task == "evaluate" else params.iterations
    if iteration is not None and str(iteration) not in known:
        print(f"--iteration: {iteration} is not allowed: params.yaml has {', '.join(known)}", file=sys.stderr)
        sys.exit(2)
    also = params.evaluate.also
    if task == "games" and also is not None and not Path(also.root).exists():
        # this stage does not read it, but it is the first: else it would be missed when a policy is measured
        print(f"evaluate.also.root: {also.root!r} is not allowed: a folder that is there", file=sys.stderr)
        sys.exit(2)
    return params


def _sweep(own: Path) -> None:
    """Take away the scratch of stages that had ended when DVC last took outs. One whose outs it has not taken yet is
    run again if DVC is killed, and needs its own. So does the stage with the scratch ``own``: it runs, and its mark, if
    it still has one, is of another time."""
    lock = Path("dvc.lock")
    taken = lock.stat().st_mtime if lock.exists() else 0.0
    for mark in layout.SCRATCH.glob(f"*/{ENDED}"):
        with suppress(FileNotFoundError):  # a stage beside this one was first
            if mark.stat().st_mtime < taken:
                shutil.rmtree(mark.parent, ignore_errors=True)
    (own / ENDED).unlink(missing_ok=True)


def _seed(seed: int) -> None:
    """The global generators, for libraries that draw from them; our own draws carry their seed."""
    import numpy as np

    random.seed(seed)
    np.random.seed(seed)


def _closing_line(stage: Stage) -> str:
    report = stage.clock.report()
    parts = ", ".join(f"{name} {report[name]:.1f}" for name in ("launch", "tracking", "gates"))
    return f"{stage.name}: {report['seconds']:.1f} s, of these {report['orchestration']:.1f} s orchestration ({parts})"
