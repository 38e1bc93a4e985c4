"""What is done in MLflow for each line of a stage's file (:mod:`tasks.frame.spool`). Runs in the sender's process.

Runs are found by their tags ``campaign``, ``stage`` and ``iteration``. Everything here can be done twice: a sender that
was killed does its last line again.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from tasks.frame.home import home, spool_folder
from tasks.frame.tracking import EXPERIMENT, is_remote, tracking_uri

ENDS = ("FINISHED", "FAILED", "KILLED")
RETRIES = 3
"""How often MLflow opens a database again that it could not open. Its own number takes a hundred seconds."""
_NAMES = re.compile(r"[^\w\-. /:]")
"""What MLflow's names cannot hold."""


class Store:
    """MLflow for one stage's file. ``runs``: its runs' ids by ``stage``, ``iteration``, ``campaign``, once open."""

    def __init__(self, runs: dict) -> None:
        self.runs = runs
        self.client, self.experiment = connect()

    def take(self, said: Mapping) -> None:
        """Do what a line says. Raises what MLflow raises."""
        fields = dict(said)
        getattr(self, f"_{fields.pop('say')}")(fields.pop("at"), **fields)

    def _open(
        self, at: int, *, spool: str, task: str, iteration: int | None, campaign: str, params: Mapping, own: Mapping,
        tags: Mapping,
    ) -> None:  # fmt: skip
        """The campaign's run and the iteration's, which are there or are made, and a run of this very stage."""
        of = {"campaign": campaign}
        with _one_at_a_time():
            top = self._one(of | {"stage": "campaign"}, f"campaign {_short(campaign)}", at, tags)
            self._params(top, params)
            parent = top
            if iteration is not None:
                found = of | {"stage": "iteration", "iteration": str(iteration)}
                parent = self._one(found, f"iteration {iteration}", at, {**tags, "mlflow.parentRunId": top})
            self._close_killed(of | stage_tags(task, iteration), spool)
            own_tags = {**tags, **of, **stage_tags(task, iteration), "mlflow.parentRunId": parent}
            run = self._one({"spool": spool}, name_of(task, iteration), at, own_tags)
        for open_run in {top, parent}:
            self.client.update_run(open_run, status="RUNNING")
        self._params(run, own)
        self.runs |= {"campaign": top, "iteration": parent, "stage": run}

    def _metrics(
        self, at: int, *, metrics: Sequence[Sequence], on: Sequence[str], model: Sequence | None = None,
        data: Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        """``metrics``: name, value, step; ``on``: whose runs. With ``model``, digest and iteration of a policy,
        and ``data``, name and digest of what it was measured on, they are the model's figures too."""
        from mlflow.entities import Metric

        found = self.model(*model) if model else None
        measured = {"model_id": found.model_id} if found else {}
        if found and data:
            measured |= {"dataset_name": data[0], "dataset_digest": data[1]}
        for who in sorted({self.runs[name] for name in on}):
            extra = measured if who == self.runs["stage"] else {}
            flat = [Metric(metric_name(name), float(value), at, int(step), **extra) for name, value, step in metrics]
            for start in range(0, len(flat), 1000):  # the most that one call may carry
                self.client.log_batch(who, metrics=flat[start : start + 1000])

    def _tags(self, at: int, *, tags: Mapping[str, str], on: Sequence[str]) -> None:
        for run in sorted({self.runs[name] for name in on}):
            for name, value in tags.items():
                self.client.set_tag(run, name, value[:5000])

    def _data(self, at: int, *, name: str, md5: str, context: str) -> None:
        """Join the run to data by path and DVC md5."""
        from mlflow.data.filesystem_dataset_source import FileSystemDatasetSource  # noqa: F401  (registers the type)
        from mlflow.data.http_dataset_source import HTTPDatasetSource  # noqa: F401
        from mlflow.entities import Dataset, DatasetInput, InputTag

        dataset = Dataset(name=name, digest=md5, source_type="local", source=json.dumps({"uri": name}))
        self.client.log_inputs(self.runs["stage"], [DatasetInput(dataset, [InputTag("mlflow.data.context", context)])])

    def _artifact(self, at: int, *, path: str, folder: str | None) -> None:
        if Path(path).is_dir():
            self.client.log_artifacts(self.runs["stage"], path, folder or Path(path).name)
        else:
            self.client.log_artifact(self.runs["stage"], path, folder)

    def _model(self, at: int, *, digest: str, iteration: int, lineage: Mapping[str, str]) -> None:
        """A logged model: identity and lineage; the weights stay in DVC."""
        import mlflow
        from mlflow.entities import LoggedModelOutput

        found = self.model(digest, iteration) or mlflow.create_external_model(
            name=f"policy-{iteration}",
            source_run_id=self.runs["stage"],
            model_type="policy",
            params=dict(lineage),
            tags=dict(lineage),
            experiment_id=self.experiment,
        )
        self.client.log_outputs(self.runs["stage"], [LoggedModelOutput(found.model_id, iteration)])

    def model(self, digest: str, iteration: int | str):
        """The logged model of these weights as the policy of this iteration, or None. A policy that stayed, because
        its PRM was refused, is that of two iterations."""
        asked = f"tags.digest = '{digest}' and tags.iteration = '{iteration}'"
        found = self.client.search_logged_models([self.experiment], asked, max_results=1)
        return found[0] if found else None

    def _upstream(self, at: int, *, stages: Sequence[Mapping]) -> None:
        """Runs of stages that did not run again in this campaign, because DVC found them up to date: so that its chart
        has all iterations. ``stages``: each with task, iteration, figures and their md5."""
        campaign = self.client.get_run(self.runs["campaign"]).data.tags["campaign"]
        there = {_stage_of(run) for run in self._search({"campaign": campaign}) if run.info.status in ENDS}
        for stage in stages:
            if (stage["task"], stage["iteration"]) not in there:
                self._link(campaign, at, **stage)

    def _link(self, campaign: str, at: int, *, task: str, iteration: int | None, figures: Sequence, md5: str) -> None:
        first = self._search({"stage": task, "figures": md5})
        ran = min(first, key=lambda run: run.info.start_time) if first else None
        when = ran.info.end_time or at if ran else at
        top = parent = self.runs["campaign"]
        if iteration is not None:
            found = {"campaign": campaign, "stage": "iteration", "iteration": str(iteration)}
            parent = self._one(found, f"iteration {iteration}", when, {"mlflow.parentRunId": top})
        tags = {"cached": "true", "figures": md5, "mlflow.parentRunId": parent}
        if ran:
            tags |= {"first_run": ran.info.run_id, "first_campaign": ran.data.tags["campaign"]}
        own = {"campaign": campaign, **stage_tags(task, iteration)}
        run = self._one(own | {"cached": "true"}, f"{name_of(task, iteration)} (cached)", when, own | tags)
        linked = Store.__new__(Store)
        linked.client, linked.experiment = self.client, self.experiment
        linked.runs = {"stage": run, "iteration": parent, "campaign": top}
        linked._metrics(when, metrics=figures, on=["stage", "iteration", "campaign"])
        for over in {run, parent} - {top}:
            self.client.set_terminated(over, "FINISHED", when)

    def _call(self, at: int, *, function: str, arguments: Mapping) -> None:
        """``package.module:function`` of this repository, with this store and ``arguments``."""
        module, _, name = function.partition(":")
        getattr(import_module(module), name)(self, **arguments)

    def _end(self, at: int, *, status: str, campaign: bool) -> None:
        """Close the stage's run and its iteration's; the campaign's at its end, or where a stage went wrong."""
        self.client.set_terminated(self.runs["stage"], status, at)
        over = {self.runs["iteration"]} - {self.runs["campaign"]}
        if campaign or status != "FINISHED":
            over |= {self.runs["campaign"]}
        for run in sorted(over):
            self.client.set_terminated(run, status, at)

    def _one(self, found_by: Mapping[str, str], name: str, at: int, tags: Mapping[str, str]) -> str:
        """The run with these tags, made where there is none. Of two that two machines made at once the first counts."""
        if runs := self._search(found_by):
            return _first(runs)
        made = self.client.create_run(
            self.experiment, start_time=at, run_name=name, tags={**tags, **found_by}
        ).info.run_id
        first = _first(self._search(found_by))
        if first != made:
            self.client.delete_run(made)
        return first

    def _search(self, tags: Mapping[str, str]) -> list:
        asked = " and ".join(f"tags.`{name}` = '{value}'" for name, value in tags.items())
        return list(self.client.search_runs([self.experiment], asked, max_results=1000))

    def _close_killed(self, tags: Mapping[str, str], spool: str) -> None:
        """Earlier runs of this stage that a killed machine left open."""
        for run in self._search(tags):
            if run.info.status == "RUNNING" and run.data.tags.get("spool") != spool:
                self.client.set_terminated(run.info.run_id, "KILLED")

    def _params(self, run: str, params: Mapping) -> None:
        """Once: MLflow lets nobody change them."""
        from mlflow.entities import Param

        if self.client.get_run(run).data.params:
            return
        listed = [Param(name, str(value)[:6000]) for name, value in params.items()]
        for start in range(0, len(listed), 100):
            self.client.log_batch(run, params=listed[start : start + 100])


def stage_tags(task: str, iteration: int | None) -> dict[str, str]:
    return {"stage": task} if iteration is None else {"stage": task, "iteration": str(iteration)}


def name_of(task: str, iteration: int | None) -> str:
    return task if iteration is None else f"{task}@{iteration}"


def metric_name(name: str) -> str:
    """MLflow's names know no @: ``best_of_16@0.7`` is ``best_of_16_at_0.7`` there."""
    return _NAMES.sub("_", name.replace("@", "_at_"))


def _short(campaign: str) -> str:
    """A name as it is; of a digest the first digits."""
    return campaign[:6] if re.fullmatch("[0-9a-f]{16}", campaign) else campaign


def _stage_of(run) -> tuple[str, int | None]:
    tags = run.data.tags
    return tags.get("stage", ""), int(tags["iteration"]) if "iteration" in tags else None


def _first(runs: Sequence) -> str:
    return min((run.info.start_time, run.info.run_id) for run in runs)[1]


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Of the senders of this checkout."""
    spool_folder().mkdir(parents=True, exist_ok=True)
    with (spool_folder() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def connect() -> tuple:
    """(client, experiment id). Makes the database and the experiment where they are not there yet, without MLflow's
    account of each table. MLflow is imported here and nowhere at the top: it takes two seconds."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    import mlflow

    for migrates in ("alembic", "mlflow.store.db.utils"):  # mlflow's import sets the level of its loggers
        logging.getLogger(migrates).setLevel(logging.ERROR)
    mlflow.set_tracking_uri(tracking_uri())
    if not is_remote():
        from mlflow.store.db import utils

        utils.MAX_RETRY_COUNT = RETRIES
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name(EXPERIMENT)
    if experiment:
        return client, experiment.experiment_id
    apart = home() != Path() and not is_remote()  # files must not lie in a folder that goes
    files = (home() / "mlruns" / EXPERIMENT).resolve().as_uri() if apart else None
    return client, client.create_experiment(EXPERIMENT, artifact_location=files)


def find_run(campaign: str, task: str, iteration: int | None = None) -> tuple[str, str] | None:
    """(experiment id, run id) of the newest run with these tags, or None."""
    client, experiment = connect()
    tags = {"campaign": campaign, **stage_tags(task, iteration)}
    asked = " and ".join(f"tags.`{name}` = '{value}'" for name, value in tags.items())
    found = client.search_runs([experiment], asked, max_results=1, order_by=["attributes.start_time DESC"])
    return (experiment, found[0].info.run_id) if found else None
