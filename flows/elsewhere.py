"""Stages on workers: each a run of the deployment ``stage``, started again when its worker is lost or it hangs.

The flow that waits here is the one writer of the campaign's branch.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from dvc.config import Config
from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId, ArtifactFilterKey
from prefect.client.schemas.objects import State, StateType
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound
from prefect.logging import get_run_logger
from prefect.states import Cancelling, Completed

from flows import snapshot
from flows.dvc_join import StageFailed, StageHung, StageRefused, StageRun, worth_a_retry
from flows.graph import GraphStage
from flows.snapshot import Snapshot, SnapshotError
from flows.worker_stage import ENTRY, handed_back

LOOK_SECONDS = 0.25
"""Between two looks at a run that is elsewhere."""
TAKEOVERS = 5
"""How often a stage is started again because its worker was lost or it hung."""


@dataclass(frozen=True)
class Elsewhere:
    """Where and how a campaign's stages run."""

    snapshot: Snapshot
    remote: str
    """Git's, that workers fetch the branch from."""
    device: str
    """``compute.device``: stages tagged ``gpu`` go to the GPU pool where it is ``cuda``."""
    hours: float
    """That a stage may run."""
    writing: threading.Lock = field(default_factory=threading.Lock)
    ending: threading.Event = field(default_factory=threading.Event)
    """Set when the campaign is cancelled: the runs elsewhere are, too."""

    def deployment(self, stage: GraphStage) -> str:
        return "stage/stage-gpu" if "gpu" in stage.tags and self.device == "cuda" else "stage/stage"

    def publish(self, what: str, entry: dict | None = None) -> None:
        """Commit, and push to the Git remote. Raises SnapshotError where workers could not fetch it."""
        with self.writing:
            snapshot.commit_lock(self.snapshot, what, entry)
            if not snapshot.push(self.snapshot, self.remote):
                raise SnapshotError(_no_remote(self.snapshot.checkout, self.remote))


def require_remotes(checkout: Path, remote: str) -> None:
    """Raises SnapshotError where ``checkout`` lacks what workers fetch a campaign from: the Git remote called
    ``remote``, and a default DVC remote."""
    if remote not in snapshot.git(checkout, "remote").split():
        raise SnapshotError(_no_remote(checkout, remote))
    if not Config(str(checkout / ".dvc"))["core"].get("remote"):
        raise SnapshotError(f"{checkout}: workers need a DVC remote: dvc remote add --default NAME URL")


def _no_remote(checkout: Path, remote: str) -> str:
    return (
        f"{checkout}: no Git remote {remote}: workers fetch the campaign from it. git remote add {remote} URL, or name "
        "another"
    )


@task(task_run_name="{stage.name}", cache_policy=NO_CACHE, persist_result=False, retry_condition_fn=worth_a_retry)
def run_elsewhere(stage: GraphStage, where: Elsewhere) -> State[StageRun]:
    """Run ``stage`` on a worker and put its entry of ``dvc.lock`` on the branch.

    Raises StageFailed when it fails there, or was started again TAKEOVERS times.
    """
    log = get_run_logger()
    lost = 0
    with get_client(sync_client=True) as client:
        for attempt in range(1000):
            asked = _asked(stage, where, attempt)
            if asked.state is not None and asked.state.is_final() and not asked.state.is_completed():
                continue  # asked for before this flow, or this try of the task
            state = _ended(client, asked.id, where, log)
            if state.is_completed():
                entry, run = _entry(client, asked.id)
                where.publish(f"{stage.name}", entry)
                return Completed(name=run.outcome, message=f"in {run.repro_seconds:.1f} s", data=run)
            if where.ending.is_set() or not _may_go_on_elsewhere(state) or lost == TAKEOVERS:
                kind = StageRefused if StageRefused.__name__ in (state.message or "") else StageFailed
                raise kind(f"stage {stage.name} on a worker: {state.name}: {state.message}")
            lost += 1
            log.warning(f"{state.name}: {state.message}. Started again, on a worker that is free")
    raise StageFailed(f"stage {stage.name}: tried too often")


def _asked(stage: GraphStage, where: Elsewhere, attempt: int):
    """The flow run of this attempt. A campaign that is resumed finds those it had asked for."""
    commit = where.snapshot.commit
    parameters = {"campaign": where.snapshot.campaign, "commit": commit, "stage": stage.name}
    parameters |= {"remote": where.remote, "hours": where.hours}
    return run_deployment(
        where.deployment(stage),
        parameters=parameters,
        timeout=0,
        as_subflow=False,
        idempotency_key=f"{where.snapshot.campaign}/{where.snapshot.made_of}/{stage.name}/{attempt}",
    )


def _ended(client: SyncPrefectClient, run: UUID, where: Elsewhere, log) -> State:
    """The state it ended in; cancels it when the campaign is."""
    told = False
    while True:
        try:
            state = client.read_flow_run(run).state
        except ObjectNotFound:
            return State(type=StateType.CRASHED, message="its run was deleted")
        if state is not None and state.is_final():
            return state
        if where.ending.is_set():
            client.set_flow_run_state(run, Cancelling(), force=True)
            return Cancelling()
        if state is not None and state.name == "Late" and not told:
            log.warning("no worker has taken it yet: prefect worker start --pool agentprm-cpu (or agentprm-gpu)")
            told = True
        where.ending.wait(LOOK_SECONDS)


def _entry(client: SyncPrefectClient, run: UUID) -> tuple[dict, StageRun]:
    (artifact,) = client.read_artifacts(
        artifact_filter=ArtifactFilter(
            flow_run_id=ArtifactFilterFlowRunId(any_=[run]), key=ArtifactFilterKey(any_=[ENTRY])
        )
    )[-1:]
    return handed_back(str(artifact.data))


def _may_go_on_elsewhere(state: State) -> bool:
    """A worker that is gone, or a stage that was ended because it hung."""
    return state.is_crashed() or (state.is_failed() and StageHung.__name__ in (state.message or ""))
