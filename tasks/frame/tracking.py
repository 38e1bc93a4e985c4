"""What MLflow remembers: campaign → iteration → stage, with parameters, metrics, data and policies.

A campaign is one set of parameters in one checkout: other numbers in params.yaml open another. Run ids are kept in
``.scratch/mlflow_runs.json`` (``campaign``, ``iteration/1``, ``rollout@1`` …), since processes come and go. What
compares iterations is logged on the iteration's and on the campaign's run with step = iteration.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeGuard

from agentprm_core.datasets import atomic_write

RUNS = Path(".scratch/mlflow_runs.json")
EXPERIMENT = "agentprm"
MODEL = "agentprm-policy"
DEFAULT_URI = "sqlite:///mlflow.db"
MLFLOW_TRAINING = "workflowType=machine_learning"
"""Ends an address of MLflow's pages, so that they show runs and models; a browser that is new to them would see the
pages for traces of language-model applications, which are empty here."""

PRM_REFUSED = "prm_refused"
"""A tag of the runs of ``policy`` and ``compare``, and of those above them: which PRM was refused, and what it had
shown."""
SECTIONS = {"label": "critic", "prm": "critic", "collect": "method", "policy": "method"}
"""Stage → the section of params.yaml that its run is logged with, where it is not the stage's own."""


class Tracker:
    """The MLflow run of one stage. Needs no server: without MLFLOW_TRACKING_URI it writes ``mlflow.db`` here."""

    def __init__(self, stage: str, iteration: int | None, params: Mapping) -> None:
        self._client, self._experiment = connect()
        self._iteration = iteration
        with _runs() as runs:
            self._campaign = self._open_campaign(runs, params)
            parent = self._campaign
            if iteration is not None:
                parent = runs.get(f"iteration/{iteration}") or self._create(f"iteration {iteration}", parent)
                runs[f"iteration/{iteration}"] = parent
                self._client.update_run(parent, status="RUNNING")
            if killed := runs.get(stage):
                self._end_killed(killed)
            self.run_id = runs[stage] = self._create(stage, parent)
        self._parent = parent
        task = stage.partition("@")[0]
        section = SECTIONS.get(task, task)
        self._log_params(self.run_id, {"seed": params["seed"], section: params.get(section, {})})

    def log_metrics(self, metrics: Mapping, *, compared: bool = True) -> None:
        """The numbers in ``metrics`` (nested: ``unseen.greedy.success``) on the stage's run. MLflow's names know no @:
        ``best_of_16@0.7`` is ``best_of_16_at_0.7`` there.

        With ``compared`` also on the iteration's and, named after the stage, on the campaign's.
        """
        from mlflow.entities import Metric

        now, step = int(time.time() * 1000), self._iteration or 0
        numbers = [(name.replace("@", "_at_"), value) for name, value in flatten(metrics) if _is_number(value)]
        flat = [Metric(name, float(value), now, step) for name, value in numbers]
        runs = {self.run_id, self._parent, self._campaign} if compared else {self.run_id}
        for run in sorted(runs):
            for start in range(0, len(flat), 1000):  # the most that one call may carry
                self._client.log_batch(run, metrics=flat[start : start + 1000])

    def log_curve(self, name: str, curve: list[Mapping]) -> None:
        """A training curve, a list of {step, …}, as series ``name.…`` on the stage's run."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        points = [
            Metric(f"{name}.{key}", float(value), now, int(point["step"]))
            for point in curve
            for key, value in point.items()
            if key != "step" and _is_number(value)
        ]
        for start in range(0, len(points), 1000):
            self._client.log_batch(self.run_id, metrics=points[start : start + 1000])

    def tag(self, name: str, value: str) -> None:
        """A tag of the stage's run, and of its iteration's."""
        for run in sorted({self.run_id, self._parent}):
            self._client.set_tag(run, name, value)

    def log_data(self, path: Path, context: str) -> None:
        """Join the run to the data it read or wrote: path and DVC md5. ``context`` is ``input`` or ``output``."""
        from mlflow.data.filesystem_dataset_source import FileSystemDatasetSource  # noqa: F401  (registers the type)
        from mlflow.data.http_dataset_source import HTTPDatasetSource  # noqa: F401
        from mlflow.entities import Dataset, DatasetInput, InputTag

        source = json.dumps({"uri": str(path)})
        dataset = Dataset(name=path.as_posix(), digest=dvc_md5(path), source_type="local", source=source)
        self._client.log_inputs(self.run_id, [DatasetInput(dataset, [InputTag("mlflow.data.context", context)])])

    def log_files(self, *paths: Path, folder: str | None = None) -> None:
        for path in paths:
            if path.is_dir():
                self._client.log_artifacts(self.run_id, str(path), folder or path.name)
            else:
                self._client.log_artifact(self.run_id, str(path), folder)

    def register_policy(self, folder: Path, digest: str, iteration: int, parents: Mapping[str, str]) -> None:
        """A version of the model ``agentprm-policy``: identity and lineage; the weights stay in DVC."""
        import mlflow
        from mlflow.exceptions import MlflowException

        lineage = {
            "iteration": str(iteration),
            "digest": digest,
            "dvc_md5": dvc_md5(folder),
            "campaign": self._campaign,
            **{f"parent.{name}": value for name, value in parents.items()},
            **git_commit(),
        }
        external = mlflow.create_external_model(
            name=f"policy-{iteration}",
            source_run_id=self.run_id,
            params=lineage,
            tags=lineage,
            experiment_id=self._experiment,
        )
        try:
            self._client.create_registered_model(MODEL, description="Policies by iteration; weights lie in DVC.")
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        self._client.create_model_version(
            MODEL,
            source=folder.resolve().as_uri(),
            run_id=self.run_id,
            tags=lineage,
            model_id=external.model_id,
            await_creation_for=0,
        )

    def registered(self, digest: str, iteration: int) -> bool:
        """Whether a version of the model has these weights, as the policy of this iteration."""
        return bool(self._versions(digest, iteration))

    def crown(self, digest: str, iteration: int) -> None:
        """Give the alias ``champion`` to the newest version with these weights, which must be registered as the policy
        of this iteration. Where a PRM was refused, the next iteration's policy has the same weights."""
        newest = max(self._versions(digest, iteration), key=lambda version: int(version.version))
        self._client.set_registered_model_alias(MODEL, "champion", newest.version)

    def _versions(self, digest: str, iteration: int) -> list:
        wanted = {"digest": digest, "iteration": str(iteration)}
        versions = self._client.search_model_versions(f"name='{MODEL}'")
        return [version for version in versions if wanted.items() <= version.tags.items()]

    def end(self, status: str = "FINISHED", *, campaign: bool = False) -> None:
        """Close the stage's run and its iteration's; with ``campaign`` that too."""
        self._client.set_terminated(self.run_id, status)
        if self._parent != self._campaign:
            self._client.set_terminated(self._parent, status)
        if campaign or status != "FINISHED":
            self._client.set_terminated(self._campaign, status)

    def _open_campaign(self, runs: dict, params: Mapping) -> str:
        digest = hashlib.sha256(json.dumps(params, sort_keys=True).encode()).hexdigest()[:16]
        owner = {"uri": tracking_uri(), "params": digest}
        if runs.get("owner") != owner or not self._exists(runs["campaign"]):
            runs.clear()
            runs["owner"] = owner
            runs["campaign"] = self._create(f"campaign {digest[:6]}", None)
            self._log_params(runs["campaign"], params)
        self._client.update_run(runs["campaign"], status="RUNNING")
        return runs["campaign"]

    def _create(self, name: str, parent: str | None) -> str:
        tags = {"mlflow.parentRunId": parent} if parent else {}
        return self._client.create_run(self._experiment, run_name=name, tags=tags | git_commit()).info.run_id

    def _exists(self, run_id: str) -> bool:
        from mlflow.exceptions import MlflowException

        try:
            return self._client.get_run(run_id).info.lifecycle_stage == "active"
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return False

    def _end_killed(self, run_id: str) -> None:
        """A stage that was killed could not close its run."""
        if self._client.get_run(run_id).info.status == "RUNNING":
            self._client.set_terminated(run_id, "KILLED")

    def _log_params(self, run_id: str, params: Mapping) -> None:
        from mlflow.entities import Param

        self._client.log_batch(run_id, params=[Param(name, str(value)) for name, value in flatten(params)])


def tracking_uri() -> str:
    return os.environ.get("MLFLOW_TRACKING_URI", DEFAULT_URI)


def flatten(nested: Mapping, prefix: str = "") -> Iterator[tuple[str, object]]:
    """(``a.b.c``, value) of nested mappings; a list is one value."""
    for key, value in nested.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def dvc_md5(path: Path) -> str:
    """The md5 by which DVC knows a file or folder, computed as DVC does."""
    if path.is_file():
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "md5").hexdigest()
    files = sorted(file for file in path.rglob("*") if file.is_file())
    listing = [{"md5": dvc_md5(file), "relpath": file.relative_to(path).as_posix()} for file in files]
    listing.sort(key=lambda entry: entry["relpath"])
    return hashlib.md5(json.dumps(listing, sort_keys=True).encode()).hexdigest() + ".dir"


def git_commit() -> dict[str, str]:
    """{``git_commit``: hash}, with ``+`` where tracked files differ from it; empty outside a repository."""
    shown = subprocess.run(
        ["git", "describe", "--always", "--abbrev=40", "--dirty=+", "--exclude=*"], capture_output=True, text=True
    )
    return {"git_commit": shown.stdout.strip()} if shown.returncode == 0 else {}


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def connect() -> tuple:
    """(client, experiment id). Makes the database and the experiment where they are not there yet, without MLflow's
    account of each table. MLflow is imported here and nowhere at the top: it takes two seconds."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    import mlflow

    for migrates in ("alembic", "mlflow.store.db.utils"):  # mlflow's import sets the level of its loggers
        logging.getLogger(migrates).setLevel(logging.WARNING)
    mlflow.set_tracking_uri(tracking_uri())
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name(EXPERIMENT)
    return client, experiment.experiment_id if experiment else client.create_experiment(EXPERIMENT)


@contextmanager
def _runs() -> Iterator[dict]:
    """The ids in :data:`RUNS`, to be read and changed by one process at a time."""
    RUNS.parent.mkdir(parents=True, exist_ok=True)
    with RUNS.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        runs = json.loads(RUNS.read_text()) if RUNS.exists() else {}
        yield runs
        with atomic_write(RUNS) as aside:
            aside.write_text(json.dumps(runs, indent=2, sort_keys=True) + "\n")
