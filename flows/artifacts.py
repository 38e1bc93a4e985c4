"""Artifacts: what a flow run leaves on its page in the Prefect UI, from the files that the stages wrote.

Prefect keeps the latest of each key and its history; the keys are ``campaign-…`` and ``iteration-1-…``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from prefect.artifacts import create_link_artifact, create_markdown_artifact, create_table_artifact
from prefect.logging import get_run_logger

from agentprm_core.datasets import read_table
from agentprm_core.evaluate import OUTCOMES
from flows.dvc_join import StageRun
from flows.graph import GraphStage
from tasks.frame import layout
from tasks.frame.gates import GATES
from tasks.frame.secrets import redacted
from tasks.frame.tracking import MLFLOW_TRAINING, campaign_id, is_remote, tracking_uri
from tasks.report.text import BUDGET_WORDS, iteration_report, refused_lines

_ITERATION_COLUMNS = ("method", "iteration", "split", "decoding", "games", "success", "ci_low", "ci_high")
_ITERATION_COLUMNS += ("mean_reward", "mean_actions", "episodes_played", "tokens_trained", "seconds")


def publish_gates(page: str, stages: Sequence[GraphStage]) -> None:
    """``PAGE-gates``: each expectation of the gates that guard ``stages``, as last checked on this machine. What did
    not pass comes first."""
    rows = [
        {
            "stage": stage.name,
            "passed": "yes" if result["success"] else "a warning" if result.get("severity") == "warning" else "NO",
            "expected": result["why"],
            "observed": result["observed"],
            "data": result["table"],
            "rows": "; ".join(result["rows"]),
        }
        for stage in stages
        for path in _gate_results(stage)
        for result in json.loads(path.read_text())
    ]
    rows.sort(key=lambda row: ("NO", "a warning", "yes").index(row["passed"]))
    if rows:
        create_table_artifact(key=f"{page}-gates", table=rows, description="Great Expectations' gates")


def _gate_results(stage: GraphStage) -> list[Path]:
    """Of the last check on this machine, else of the stage's outs, which came from a cache or another machine."""
    places = (GATES / f"{stage.name}.json", layout.gates(stage.name.replace("@", "-")))
    return [path for path in places if path.exists()][:1]


def publish_stages(page: str, runs: Sequence[StageRun]) -> None:
    """``PAGE-stages``: what became of each stage, its seconds, and how many of them were not the stage's own work."""
    rows = [
        {
            "stage": run.stage,
            "outcome": run.outcome,
            "seconds": round(run.status_seconds + run.repro_seconds, 1),
            "of these orchestration": round(_orchestration_seconds(run), 1),
        }
        for run in runs
    ]
    create_table_artifact(
        key=f"{page}-stages",
        table=rows,
        description="Orchestration is DVC, Prefect's join, MLflow and Great Expectations.",
    )


def _campaign() -> str:
    """The id of the campaign that runs here: that of its snapshot, else of the parameters."""
    if named := os.environ.get("AGENTPRM_CAMPAIGN"):
        return named
    from tasks.frame.params import load_params  # torch, which takes seconds

    return campaign_id(load_params().as_dict())


def _orchestration_seconds(run: StageRun) -> float:
    return run.status_seconds + run.repro_seconds - (run.work_seconds or 0.0)


def publish_mlflow_link(page: str, run: str) -> None:
    """``PAGE-mlflow``: a link to the MLflow run named ``run`` (``campaign``, ``iteration/1``), where stages ran here.

    Outs that came from a cache or a remote have no run on this machine, and then there is nothing to link to.
    """
    task, _, number = run.partition("/")
    if (found := _run(task, int(number) if number else None)) is None:
        return
    experiment, run_id = found
    link = f"{mlflow_ui_url()}/#/experiments/{experiment}/runs/{run_id}?{MLFLOW_TRAINING}"
    create_link_artifact(key=f"{page}-mlflow", link=link, link_text=f"MLflow: {run}")


def _run(task: str, number: int | None) -> tuple[str, str] | None:
    """(experiment, run) in MLflow; None where there is none, or MLflow does not answer."""
    from tasks.frame.mlflow_store import find_run  # seconds of import, and only here
    from tasks.frame.sender import prepare

    prepare()
    try:
        return find_run(_campaign(), task, number)
    except Exception as error:  # whatever ails MLflow, the flow did its work
        get_run_logger().warning("no link to MLflow: %s", redacted(str(error)))
        return None


def publish_pages() -> None:
    """``campaign-report`` and ``campaign-gallery``: links to the pages of ``compare`` among its files in MLflow, where
    it has a run."""
    if (found := _run("compare", None)) is None:
        return
    experiment, run_id = found
    files = f"{mlflow_ui_url()}/#/experiments/{experiment}/runs/{run_id}/artifacts"
    for key, page, text in (
        ("campaign-report", "reports/campaign.html", "The campaign's report"),
        ("campaign-gallery", "gallery/index.html", "Games to look at"),
    ):
        create_link_artifact(key=key, link=f"{files}/{page}", link_text=text)


def mlflow_ui_url() -> str:
    """Where a browser finds MLflow: the tracking server if there is one, else the one that ``make ui`` starts."""
    if is_remote():
        return tracking_uri().rstrip("/")
    return os.environ.get("MLFLOW_UI_URL", "http://127.0.0.1:5000")


def publish_report(number: int, stages: Sequence[GraphStage]) -> None:
    """``iteration-1-report``: the success of the iteration's policy and the figures of its ``stages``, as Markdown.

    Compared with the iteration before where that is evaluated. An iteration that is not evaluated has no report.
    """
    evaluated = [layout.outcomes(i) for i in (number - 1, number) if layout.outcomes(i).exists()]
    if layout.outcomes(number) not in evaluated:
        return
    from agentprm_core.comparing import compared, prm_adds
    from tasks.frame.params import load_params
    from tasks.report.added import adds_report
    from tasks.report.campaign import spent

    params = load_params()
    outcomes = pa.concat_tables(read_table(path, OUTCOMES) for path in evaluated)
    added = adds_report(number, prm_adds(outcomes), params)
    slugs = [stage.name.replace("@", "-") for stage in stages]
    figures = {slug: json.loads(path.read_text()) for slug in slugs if (path := layout.metrics(slug)).exists()}
    own = [row | spent(row, params, _campaign()) for row in compared(outcomes) if row["iteration"] == number]
    text = iteration_report(number, own, figures, added)
    create_markdown_artifact(key=f"iteration-{number}-report", markdown=text)


def publish_iterations_table() -> None:
    """``campaign-iterations``: success of every policy, with its interval."""
    found = json.loads(layout.ITERATIONS.read_text())
    rows = [{name: row[name] for name in _ITERATION_COLUMNS} for row in found]
    said = " ".join(
        ["Success by iteration, 95 % intervals.", BUDGET_WORDS, *(f"{line}." for line in refused_lines(found))]
    )
    create_table_artifact(key="campaign-iterations", table=rows, description=said)
