"""What a stage tells MLflow: campaign → iteration → stage, with parameters, metrics, data and policies.

A campaign is one set of parameters in one checkout: other numbers in params.yaml open another. A campaign that is a
snapshot has its own name, in whichever checkouts its stages run (``AGENTPRM_CAMPAIGN``). Its runs carry the tags
``campaign``, ``stage`` and ``iteration``. What compares iterations is logged on the iteration's and on the campaign's
run with step = iteration.

Nothing here waits for MLflow. All that is said is written to a file (:mod:`tasks.frame.spool`), and a process beside
the stage sends it (:mod:`tasks.frame.sender`).
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TypeGuard

from tasks.frame.home import home
from tasks.frame.live import Live
from tasks.frame.secrets import hide_credentials, redacted
from tasks.frame.spool import Spool
from tasks.frame.upstream import upstream

EXPERIMENT = "agentprm"
MLFLOW_TRAINING = "workflowType=machine_learning"
"""Ends an address of MLflow's pages, so that they show runs and models; a browser that is new to them would see the
pages for traces of language-model applications, which are empty here."""

PRM_REFUSED = "prm_refused"
"""A tag of the runs of ``policy`` and ``compare``, and of those above them: which PRM was refused, and what it had
shown."""
SECTIONS = {"label": "critic", "prm": "critic", "collect": "method", "policy": "method"}
"""Stage → the section of params.yaml that its run is logged with, where it is not the stage's own."""
ALL = ("stage", "iteration", "campaign")
"""Whose runs what compares iterations is logged on."""
PATIENCE = 30
"""Seconds that a stage waits at its end until the last of its figures are sent."""


class Tracker:
    """The MLflow run of one stage. Needs no server: without MLFLOW_TRACKING_URI ``mlflow.db`` here is written."""

    def __init__(self, task: str, iteration: int | None, params: Mapping) -> None:
        hide_credentials()
        self.spool, self._step = Spool(task if iteration is None else f"{task}@{iteration}"), iteration or 0
        self._curves: set[tuple[str, int]] = set()
        self._linked: set[str] = set()
        self._sender = start_sender(self.spool.path)
        section = SECTIONS.get(task, task)
        own = dict(flatten({"seed": params["seed"], section: params.get(section, {})}))
        self.spool.say(
            "open", spool=self.spool.name, task=task, iteration=iteration, campaign=campaign_id(params),
            params=dict(flatten(params)), own=own, tags=source_tags(),
        )  # fmt: skip
        self.live = Live(task, self._log_live)

    def log_metrics(
        self, metrics: Mapping, *, compared: bool = True, of: str | None = None, on: Path | None = None
    ) -> None:
        """The numbers in ``metrics`` (nested: ``unseen.greedy.success``) on the stage's run.

        With ``compared`` also on the iteration's and, named after the stage, on the campaign's. ``of``: the digest of
        the policy whose figures they are, ``on``: the data that it was measured on, which the stage has read; MLflow's
        page of models then lays policies side by side.
        """
        points = [[name, value, self._step] for name, value in flatten(metrics) if _is_number(value)]
        measured = {"model": [of, self._step], "data": [on.as_posix(), dvc_md5(on)] if on else None} if of else {}
        self.spool.say("metrics", metrics=points, on=ALL if compared else ALL[:1], **measured)

    def log_curve(self, name: str, curve: Sequence[Mapping]) -> None:
        """A training curve, a list of {step, …}, as series ``name.…`` on the stage's run; what was told while the stage
        trained is not told again."""
        points = [
            [f"{name}.{key}", value, int(point["step"])]
            for point in curve
            for key, value in point.items()
            if key != "step" and _is_number(value) and (f"{name}.{key}", int(point["step"])) not in self._curves
        ]
        self.spool.say("metrics", metrics=points, on=ALL[:1])

    def tag(self, name: str, value: str) -> None:
        """A tag of the stage's run, and of its iteration's."""
        self.spool.say("tags", tags={name: value}, on=ALL[:2])

    def log_figures(self, path: Path) -> None:
        """Which figures the run has: the md5 of their file, by which a later campaign finds the run."""
        self.spool.say("tags", tags={"figures": dvc_md5(path)}, on=ALL[:1])

    def log_data(self, path: Path, context: str) -> None:
        """Join the run to the data it read or wrote: path and DVC md5. ``context`` is ``input`` or ``output``. Stages
        that made an input and did not run in this campaign are linked into it."""
        self.spool.say("data", name=path.as_posix(), md5=dvc_md5(path), context=context)
        if context == "input" and (made := upstream(path, apart=self._linked)):
            self._linked |= {json.dumps([stage["task"], stage["iteration"]]) for stage in made}
            figures = [
                stage
                | {"figures": [[n, v, stage["iteration"] or 0] for n, v in flatten(stage["figures"]) if _is_number(v)]}
                for stage in made
            ]
            self.spool.say("upstream", stages=figures)

    def log_files(self, *paths: Path, folder: str | None = None) -> None:
        """Files and folders as artifacts of the stage's run."""
        for path in paths:
            if (copy := self.spool.keep(path)) is not None:
                self.spool.say("artifact", path=copy, folder=folder)

    def register_policy(self, folder: Path, digest: str, iteration: int, parents: Mapping[str, str]) -> None:
        """A logged model of MLflow: identity and lineage of a policy; the weights stay in DVC."""
        self.spool.say("model", digest=digest, iteration=iteration, lineage=lineage(folder, digest, iteration, parents))

    def call(self, function: str, **arguments: object) -> None:
        """``package.module:name`` of this repository, called in the process that sends, with the
        :class:`tasks.frame.mlflow_store.Store` and ``arguments``, which are JSON."""
        self.spool.say("call", function=function, arguments=arguments)

    def failed(self, error: BaseException) -> None:
        """Close the runs with what went wrong: a tag, and the traceback as an artifact."""
        line = redacted(f"{type(error).__name__}: {error}")
        self.spool.say("tags", tags={"error": line[:1000]}, on=ALL[:1])
        text = redacted("".join(traceback.format_exception(error)))
        place = self.spool.path.with_suffix(".error") / "error.txt"
        try:
            place.parent.mkdir()
            place.write_text(text)
            self.log_files(place)
            place.unlink()
            place.parent.rmdir()
        except OSError:
            pass  # no room for it: the tag says what there is to say
        self.end("KILLED" if isinstance(error, KeyboardInterrupt) else "FAILED")

    def end(self, status: str = "FINISHED", *, campaign: bool = False) -> None:
        """Close the stage's run and its iteration's; with ``campaign`` that too. Waits until all is sent, for at most
        :data:`PATIENCE` seconds: what is not sent by then is sent later."""
        self.live.close()
        self.spool.say("end", status=status, campaign=campaign)
        self.spool.close()
        if self._sender is None:
            return
        assert self._sender.stdin is not None  # it is a pipe
        self._sender.stdin.close()
        try:
            self._sender.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._sender.kill()
            self._sender.wait()

    def _log_live(self, metrics: Sequence[Sequence], curve: bool) -> None:
        if curve:
            self._curves |= {(name, step) for name, _, step in metrics}
        self.spool.say("metrics", metrics=metrics, on=ALL[:1])


def start_sender(path: Path) -> subprocess.Popen | None:
    """The process beside this one that sends what ``path`` says; None where none can be started, or MLflow is not
    installed."""
    if find_spec("mlflow") is None:
        print(f"figures are kept in {path}: MLflow is not installed", file=sys.stderr)
        return None
    modules = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}  # the same as this process has
    command = [sys.executable, "-m", "tasks.frame.sender", str(path)]
    try:
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=os.environ | modules)
    except OSError as error:
        print(f"figures are kept in {path}: {error}", file=sys.stderr)
        return None


def tracking_uri() -> str:
    """Where MLflow is, without user and password: ``mlflow.db`` of the checkout where nothing else is said."""
    hide_credentials()
    here = home()
    database = "mlflow.db" if here == Path() else here.resolve() / "mlflow.db"
    return os.environ.get("MLFLOW_TRACKING_URI", f"sqlite:///{database}")


def is_remote() -> bool:
    """Whether MLflow is a server elsewhere, and not a database that this checkout writes."""
    return tracking_uri().startswith(("http://", "https://"))


def campaign_id(params: Mapping) -> str:
    """16 hexadecimal digits, the same in every process of a campaign: of its parameters and, where several checkouts
    write to one server, of this one. ``AGENTPRM_CAMPAIGN`` goes before."""
    if named := os.environ.get("AGENTPRM_CAMPAIGN"):
        return named
    place = [socket.gethostname(), str(home().resolve())] if is_remote() else []
    return hashlib.sha256(json.dumps([params, *place], sort_keys=True).encode()).hexdigest()[:16]


def lineage(folder: Path, digest: str, iteration: int, parents: Mapping[str, str]) -> dict[str, str]:
    """What a policy is and comes from."""
    made = {"digest": digest, "dvc_md5": dvc_md5(folder), "iteration": str(iteration)}
    return {**made, **{f"parent.{name}": value for name, value in parents.items()}, **git_commit()}


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
    shown = _git("describe", "--always", "--abbrev=40", "--dirty=+", "--exclude=*")
    return {"git_commit": shown} if shown else {}


def source_tags() -> dict[str, str]:
    """The tags by which MLflow's pages show where a run comes from."""
    commit = git_commit()
    if not commit:
        return {}
    branch, origin = _git("rev-parse", "--abbrev-ref", "HEAD"), _git("config", "--get", "remote.origin.url")
    shown = {"commit": commit["git_commit"].rstrip("+"), "branch": branch, "repoURL": redacted(origin)}
    tags = {f"mlflow.source.git.{name}": value for name, value in shown.items() if value}
    return {**commit, **tags, "mlflow.source.type": "LOCAL", "mlflow.source.name": Path(sys.argv[0]).name}


def _git(*arguments: str) -> str:
    shown = subprocess.run(["git", *arguments], capture_output=True, text=True)
    return shown.stdout.strip() if shown.returncode == 0 else ""


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
