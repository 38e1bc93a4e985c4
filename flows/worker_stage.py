"""The flow ``stage``: one stage of a campaign, on whichever worker takes it, from the campaign's Git branch.

It fetches the snapshot, pulls what the stage needs, runs it, pushes what it wrote, and leaves its entry of ``dvc.lock``
as an artifact of the flow run. The campaign's flow writes the entry. Portions and training states are copied to the DVC
remote while the stage runs, so another worker can go on from them.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import threading
import time
from importlib import import_module
from pathlib import Path

from prefect import flow
from prefect.artifacts import create_markdown_artifact
from prefect.logging import get_run_logger

from flows import gpus, snapshot
from flows.dvc_join import HOURS, StageRun, reproduce, work_seconds
from flows.graph import GraphStage, read_graph
from flows.mirror import mirror
from flows.remote import Remote
from flows.snapshot import LOCK, SnapshotError
from tasks.frame.layout import SCRATCH

ENTRY = "dvc-lock"
"""Key of the artifact that hands back what DVC wrote of the stage."""


@flow(name="stage", flow_run_name="{stage} of {campaign}")
def run_on_worker(campaign: str, commit: str, stage: str, remote: str = "origin", hours: float = HOURS) -> None:
    """Run ``stage`` of the campaign as it is at ``commit``, for at most ``hours``. Started by the flow ``campaign``.

    Raises SnapshotError where the snapshot cannot be had here, and what :func:`flows.dvc_join.reproduce` raises.
    """
    threading.Thread(target=_import_early, daemon=True).start()
    checkout, log = Path.cwd(), get_run_logger()
    begun, started = time.monotonic(), time.time()
    _require(checkout, campaign, commit, remote)
    folder = checkout / snapshot.CAMPAIGNS / campaign
    folder.mkdir(parents=True, exist_ok=True)
    root = folder / stage.replace("@", "-")
    # another run of this stage on this machine that is about to be ended is waited for
    with snapshot.held(root.with_suffix(".pid"), "", wait=True) as lock:
        snapshot.worktree(checkout, root, commit)
        same_packages(root)
        with contextlib.chdir(root), _tracked_in(checkout, campaign):
            ready, store = _stage(root, stage), Remote(root)
            store.pull(stage, ready.needs)
            portions = mirror(store, campaign, stage, root / SCRATCH / stage)
            if brought := portions.fetch():
                log.info(f"{brought} files of a run before are here to go on from")
            pulled = time.monotonic()
            with gpus.taken(ready, root), portions.watching(log.warning):
                said = reproduce(ready.name, log.info, hours, "--allow-missing", lock=lock)
            ended = time.monotonic()
            entry = snapshot.read_entry(root / LOCK, stage)
            store.push(stage)
            portions.clear()
            fresh = any("didn't change, skipping" in line for line in said)
            worked = None if fresh else work_seconds(stage, started)
        run = {"stage": stage, "outcome": "UpToDate" if fresh else "Completed", "repro_seconds": ended - pulled}
        run["work_seconds"] = worked
        run["status_seconds"] = pulled - begun + time.monotonic() - ended
        create_markdown_artifact(key=ENTRY, markdown=json.dumps({"entry": entry, "run": run}))
        snapshot.remove(checkout, root)
    gc.freeze()  # else the interpreter looks through every module before it ends, and the worker waits


def _import_early() -> None:
    """What DVC imports when it first reads the graph and reaches a bucket. Meanwhile Git lays out the snapshot."""
    for module in ("networkx", "s3fs"):
        with contextlib.suppress(ImportError):
            import_module(module)


def handed_back(markdown: str) -> tuple[dict, StageRun]:
    """The entry of ``dvc.lock`` and what became of the stage, from the artifact's text."""
    told = json.loads(markdown)
    return told["entry"], StageRun(**told["run"])


def _require(checkout: Path, campaign: str, commit: str, remote: str) -> None:
    """Raises SnapshotError unless the commit is here, or in the Git remote."""
    if snapshot.exists(checkout, commit):
        return
    branch = snapshot.branch_of(campaign)
    try:
        snapshot.git(checkout, "fetch", "--quiet", remote, branch)
    except SnapshotError as error:
        raise SnapshotError(
            f"campaign {campaign}: its branch {branch} cannot be fetched from {remote}: {error}"
        ) from error
    if not snapshot.exists(checkout, commit):
        raise SnapshotError(
            f"campaign {campaign}: {remote} has {branch}, but no commit {commit} any more: push it again"
        )


def same_packages(root: Path) -> None:
    """Raises SnapshotError unless this environment has the versions of the snapshot's ``requirements.lock``: others
    would give other bytes."""
    from importlib.metadata import distributions

    lock = root / "requirements.lock"
    if not lock.exists():
        return
    installed = {d.metadata["Name"].lower().replace("_", "-"): d.version.partition("+")[0] for d in distributions()}
    wanted = [line.strip().lower().split("==") for line in lock.read_text().splitlines() if "==" in line]
    others = [f"{name} {installed[key]} is not {version}" for name, version in wanted
              if (key := name.replace("_", "-")) in installed and installed[key].lower() != version]  # fmt: skip
    if others:
        raise SnapshotError(
            f"this worker is of another version ({', '.join(others[:3])}): git checkout, then make venv"
        )


def _stage(root: Path, name: str) -> GraphStage:
    """Of the snapshot's graph. Raises SnapshotError where it has none of that name."""
    stage = next((s for s in read_graph(root) if s.name == name), None)
    if stage is None:
        raise SnapshotError(f"stage {name}: dvc.yaml of the snapshot has none of that name")
    return stage


@contextlib.contextmanager
def _tracked_in(checkout: Path, campaign: str):
    """With the environment of the campaign's stages (:func:`flows.snapshot.stage_variables`)."""
    before = dict(os.environ)
    os.environ.update(snapshot.stage_variables(checkout, Path.cwd(), campaign))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
