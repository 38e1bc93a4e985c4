"""The flow ``campaign``: every stage of the graph, from a snapshot of the checkout, as tracked tasks.

``python -m flows.campaign`` runs it here, against the server of ``make ui``; ``prefect deployment run
campaign/campaign`` runs it on that server's worker. An edit of the checkout changes nothing of a campaign that runs.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Literal

import yaml
from prefect import flow
from prefect.futures import PrefectFuture
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.task_runners import ThreadPoolTaskRunner
from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

from agentprm_core.arguments import above_zero, at_least, count
from flows import snapshot
from flows.artifacts import (
    publish_gates,
    publish_iterations_table,
    publish_mlflow_link,
    publish_pages,
    publish_report,
    publish_stages,
)
from flows.dvc_join import HOURS, StageRun, run_stage
from flows.elsewhere import Elsewhere, require_remotes, run_elsewhere
from flows.form import Name, Override, Profile, World
from flows.graph import GraphStage, read_graph, steps
from flows.iteration import RETRY_DELAY_SECONDS, staged
from flows.reach import NoServer, require_server
from flows.ready import run_ready
from flows.snapshot import Snapshot
from flows.unsent import send_the_rest
from tasks.frame import layout

AT_ONCE_ELSEWHERE = 64
"""Stages that are asked for at once where workers run them: more than ever are ready."""


@flow(task_runner=ThreadPoolTaskRunner(max_workers=AT_ONCE_ELSEWHERE))  # pyright: ignore[reportArgumentType]
def campaign(
    profiles: list[Profile] = [],  # noqa: B006  (Prefect's form shows it)
    overrides: list[Override] = [],  # noqa: B006
    seed: NonNegativeInt | Literal["new"] | None = None,
    world: World | None = None,
    name: Name | None = None,
    retries: NonNegativeInt = 0,
    hours: PositiveFloat = HOURS,
    at_once: PositiveInt = 1,
    workers: bool = False,
    git_remote: str = "origin",
) -> list[StageRun]:
    """Bring every stage of dvc.yaml up to date, in a snapshot of the checkout on the Git branch campaign/NAME.

    Args:
        profiles: named changes of params.yaml, from left to right.
        overrides: single keys of params.yaml, after the profiles, as KEY=VALUE: rollout.games=900.
        seed: another seed; new is one made from the campaign's name.
        world: another world than params.yaml has; its profile comes before the others.
        name: of the campaign, and of its branch; one that exists goes on. None is the name of the run.
        retries: how often a failed stage is tried again. Not where the same would come of it.
        hours: that a stage may run.
        at_once: stages that run side by side here.
        workers: run stages on whichever workers are free, as runs of the deployment stage. Needs a Git remote and a DVC
            remote that all of them reach.
        git_remote: where the branch is pushed to, if the checkout has a remote of that name.

    Raises :class:`flows.dvc_join.StageFailed` when a stage fails, :class:`flows.snapshot.SnapshotError` when no
    snapshot can be had, :class:`tasks.frame.params.ParamsError` for values that params.yaml may not hold: nothing has
    begun then.
    """
    name = name or f"{flow_run.get_name()}-{str(flow_run.get_id())[:6]}"
    words = [*([world] if world else []), *profiles, *overrides, *_seed(seed, name)]
    checkout = Path.cwd()
    if workers:
        require_remotes(checkout, git_remote)
    with snapshot.opened(checkout, name, words) as taken, _inside(taken):
        get_run_logger().info(f"campaign {name}: branch {taken.branch}, worktree {taken.root}")
        if workers:
            return _on_workers(taken, retries, hours, git_remote)
        start = partial(_here, retries=retries, hours=hours)
        return _campaign(taken, start, partial(_record, taken, git_remote), at_once)


def _campaign(
    taken: Snapshot, start: Callable[[GraphStage], PrefectFuture], record: Callable[[StageRun], object], at_once: int
) -> list[StageRun]:
    graph = read_graph(taken.root)
    order = [stage for step in steps(graph) for stage in step.stages]
    left = {number: {s.name for s in order if s.iteration == number} for number in {s.iteration for s in order}}
    of_stage = {stage.name: stage.iteration for stage in order}

    def ended(run: StageRun) -> None:
        record(run)
        number = of_stage[run.stage]
        left[number].discard(run.stage)
        if number is not None and not left[number]:
            publish_report(number, [stage for stage in order if stage.iteration == number])

    try:
        runs = run_ready(order, start, ended, at_once=at_once)
    finally:
        publish_gates("campaign", order)
        send_the_rest(get_run_logger().info)
    publish_stages("campaign", runs)
    publish_iterations_table()
    publish_mlflow_link("campaign", "campaign")
    publish_pages()
    return runs


def _here(stage: GraphStage, retries: int, hours: float) -> PrefectFuture:
    return staged(run_stage, stage, retries).submit(stage, hours)


def _record(taken: Snapshot, git_remote: str, run: StageRun) -> None:
    """One commit a stage that ran. That the remote cannot be reached ends no campaign that runs here."""
    if snapshot.commit_lock(taken, run.stage):
        try:
            snapshot.push(taken, git_remote)
        except snapshot.SnapshotError as error:
            get_run_logger().warning(f"{taken.branch} is not pushed: {error}")


def _on_workers(taken: Snapshot, retries: int, hours: float, git_remote: str) -> list[StageRun]:
    device = yaml.safe_load((taken.root / "params.yaml").read_text())["compute"]["device"]
    where = Elsewhere(taken, git_remote, device, hours)
    where.publish("start")

    def start(stage: GraphStage) -> PrefectFuture:
        tried = run_elsewhere.with_options(retries=retries, retry_delay_seconds=RETRY_DELAY_SECONDS)
        return tried.submit(stage, where)

    try:
        return _campaign(taken, start, partial(_bring, taken), AT_ONCE_ELSEWHERE)
    finally:
        where.ending.set()


def _bring(taken: Snapshot, run: StageRun) -> None:
    """What the reports read of a stage that ran elsewhere: its figures and gates, and all that was measured."""
    from dvc.repo import Repo

    if run.stage.startswith(("evaluate", "compare")):
        targets = [run.stage]
    else:
        slug, entry = run.stage.replace("@", "-"), snapshot.read_entry(taken.root / snapshot.LOCK, run.stage)
        small = (layout.metrics(slug).as_posix(), layout.gates(slug).as_posix())
        targets = [out["path"] for out in entry[run.stage].get("outs", ()) if out["path"] in small]
    if targets:
        with Repo(str(taken.root)) as repo:
            repo.pull(targets=targets)


def _seed(seed: int | str | None, name: str) -> list[str]:
    """``new``: of the campaign's name, so that a campaign that is run again has the same one."""
    if seed == "new":
        seed = int(hashlib.sha256(name.encode()).hexdigest()[:7], 16)
    return [] if seed is None else [f"seed={seed}"]


@contextlib.contextmanager
def _inside(taken: Snapshot) -> Iterator[None]:
    """In the worktree, with the environment of its stages."""
    before = dict(os.environ)
    os.environ.update(snapshot.stage_variables(taken.checkout, taken.root, taken.campaign))
    try:
        with contextlib.chdir(taken.root):
            yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def main() -> None:
    import argparse

    parser = argparse.ArgumentParser(prog="python -m flows.campaign", description=campaign.description)
    parser.add_argument("words", nargs="*", metavar="PROFILE or KEY=VALUE")
    parser.add_argument("--name", help="of the campaign; one that exists goes on")
    parser.add_argument("--retries", type=at_least(0), default=0, help="of a failed stage")
    parser.add_argument("--hours", type=above_zero, default=HOURS, help="that a stage may run")
    parser.add_argument("--at-once", type=count, default=1, help="stages side by side here")
    parser.add_argument("--workers", action="store_true", help="stages run on workers, as deployment runs")
    parser.add_argument("--git-remote", default="origin", help="where the branch is pushed to")
    asked = vars(parser.parse_args())
    try:
        require_server()
    except NoServer as error:
        sys.exit(f"campaign: {error}")
    try:
        if asked["name"] is not None:
            snapshot.branch_of(asked["name"])
        if asked["workers"]:
            require_remotes(Path.cwd(), asked["git_remote"])
    except snapshot.SnapshotError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    words = asked.pop("words")
    asked |= {"profiles": [word for word in words if "=" not in word], "overrides": [w for w in words if "=" in w]}
    if words:
        from tasks.frame.profile import ParamsError, checked  # torch, which takes seconds

        try:
            checked(words)
        except ParamsError as error:
            print(error, file=sys.stderr)
            sys.exit(2)
    campaign(**asked)


if __name__ == "__main__":
    main()
