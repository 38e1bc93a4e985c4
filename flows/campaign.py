"""The flow ``campaign``: every stage of the graph, iteration by iteration, as tracked tasks.

``python -m flows.campaign`` runs it here, against the server of ``make ui``; ``prefect deployment run
campaign/campaign`` runs it on that server's worker.
"""

from __future__ import annotations

from pathlib import Path

from prefect import flow

from flows.artifacts import publish_iterations_table, publish_mlflow_link, publish_stages
from flows.dvc_join import HOURS, StageRun
from flows.graph import read_graph, steps
from flows.iteration import iteration, run_stages


@flow
def campaign(retries: int = 0, hours: float = HOURS) -> list[StageRun]:
    """Bring every stage of dvc.yaml up to date, each iteration as a flow of its own.

    The same as ``dvc repro``, watched. ``retries`` is how often a failed stage is tried again, ``hours``
    how long one may run. Run in the checkout. Raises :class:`flows.dvc_join.StageFailed` when a stage fails.
    """
    runs = []
    for step in steps(read_graph(Path.cwd())):
        if step.iteration is None:
            runs += run_stages("campaign", step.stages, retries, hours)
        else:
            runs += iteration(step.iteration, retries, only=[stage.name for stage in step.stages], hours=hours)
    publish_stages("campaign", runs)
    publish_iterations_table()
    publish_mlflow_link("campaign", "campaign")
    return runs


if __name__ == "__main__":
    import argparse

    parser = argparse.ArgumentParser(description=campaign.description)
    parser.add_argument("--retries", type=int, default=0)
    parser.add_argument("--hours", type=float, default=HOURS, help="that a stage may run")
    asked = parser.parse_args()
    campaign(retries=asked.retries, hours=asked.hours)
