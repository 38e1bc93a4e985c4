"""The flow ``iteration``: the stages of one iteration of actor and critic, and all that they need, as tracked tasks."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from prefect import Task, flow

from agentprm_core.arguments import above_zero, at_least, count
from flows.artifacts import publish_gates, publish_mlflow_link, publish_report
from flows.dvc_join import HOURS, StageRun, run_stage
from flows.graph import GraphStage, read_graph, with_needs
from flows.reach import NoServer, require_server

RETRY_DELAY_SECONDS = 10


def staged(task: Task, stage: GraphStage, retries: int) -> Task:
    """``task`` for this stage, tried again ``retries`` times. Its tags are shown; what counts GPUs is
    :mod:`flows.gpus`."""
    return task.with_options(tags=list(stage.tags), retries=retries, retry_delay_seconds=RETRY_DELAY_SECONDS)


def run_stages(page: str, stages: Sequence[GraphStage], retries: int, hours: float = HOURS) -> list[StageRun]:
    """Bring ``stages`` up to date one after another, and publish their gates whether or not all goes well.

    The first that fails for good (after ``retries``) ends it. A stage that runs longer than ``hours`` is ended, which
    counts as a failure.
    """
    runs = []
    try:
        for stage in stages:
            runs.append(staged(run_stage, stage, retries)(stage, hours, return_state=True).result())
    finally:
        publish_gates(page, stages)
    return runs


@flow(flow_run_name="iteration {number}")
def iteration(number: int, retries: int = 0, only: list[str] | None = None, hours: float = HOURS) -> list[StageRun]:
    """Bring iteration ``number`` up to date: its stages and every stage that they need, or ``only`` those named.

    Run in the checkout. Publishes the gates' table, the iteration's report and a link to its MLflow run. Raises
    ValueError when dvc.yaml has no such iteration, and :class:`flows.dvc_join.StageFailed` when a stage fails.
    """
    page = f"iteration-{number}"
    stages = with_needs(read_graph(Path.cwd()), number)
    runs = run_stages(page, [stage for stage in stages if only is None or stage.name in only], retries, hours)
    publish_report(number, [stage for stage in stages if stage.iteration == number])
    publish_mlflow_link(page, f"iteration/{number}")
    return runs


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m flows.iteration", description=iteration.description)
    parser.add_argument("number", type=count)
    parser.add_argument("--retries", type=at_least(0), default=0)
    parser.add_argument("--hours", type=above_zero, default=HOURS, help="that a stage may run")
    arguments = parser.parse_args()
    try:
        require_server()
        with_needs(read_graph(Path.cwd()), arguments.number)
    except NoServer as error:
        sys.exit(f"iteration: {error}")
    except ValueError as error:
        sys.exit(str(error))
    iteration(arguments.number, retries=arguments.retries, hours=arguments.hours)


if __name__ == "__main__":
    main()
