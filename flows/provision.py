"""What a Prefect server has to know of this project: work pools, the GPU limit, automations, deployments.

    python -m flows.provision --gpus 1

Can be run again at any time and from any checkout; what is there is brought up to date. Limits stay as they are unless
``--gpus`` says otherwise. ``make ui`` runs it against its own server.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from contextlib import suppress

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound
from prefect.workers.process import ProcessWorker

from agentprm_core.arguments import at_least
from flows import automations
from flows.gpus import LIMIT
from flows.reach import NoServer, require_server

CPU_POOL = "agentprm-cpu"
GPU_POOL = "agentprm-gpu"
CAMPAIGN_POOL = "agentprm-campaigns"


def _job_template() -> dict:
    """Prefect's own for processes, with a command that no run can change. A worker then starts the engine itself; else
    it first starts a process that looks for dependencies to install, which takes a second."""
    template = ProcessWorker.get_default_base_job_template()
    template["job_configuration"]["command"] = "python -m prefect.engine"
    del template["variables"]["properties"]["command"]
    return template


def _provide_pool(client: SyncPrefectClient, name: str, description: str, limit: int | None, *, anew: bool) -> None:
    template = _job_template()
    with suppress(ObjectAlreadyExists):
        client.create_work_pool(WorkPoolCreate(name=name, type="process", base_job_template=template))
        anew = True
    update = WorkPoolUpdate(description=description, base_job_template=template)
    client.update_work_pool(name, update.model_copy(update={"concurrency_limit": limit}) if anew else update)


def provision(gpus: int | None = None) -> None:
    """Work pools, the limit ``gpu`` and the automations.

    ``gpus``: how many the pool and the limit share out; None leaves that as it is, and is 1 on a new server. The pool
    of processors has no limit: a worker has its own (``prefect worker start --limit 1``), so each host adds its
    share.
    """
    with get_client(sync_client=True) as client:
        _provide_pool(client, CPU_POOL, "Runs on the processors of whichever worker is free.", None, anew=True)
        _provide_pool(client, CAMPAIGN_POOL, "Campaigns whose stages run on workers: they wait.", None, anew=True)
        about = "Runs on the GPU that CUDA_VISIBLE_DEVICES of the worker names: one worker a GPU."
        _provide_pool(client, GPU_POOL, about, gpus or 1, anew=gpus is not None)
        if gpus is not None or not _limited(client):
            client.upsert_global_concurrency_limit_by_name(LIMIT, gpus or 1)
        with suppress(ObjectNotFound):  # of a version that counted tags: a run would be counted twice
            client.delete_concurrency_limit_by_tag("gpu")
        automations.install(client)


def _limited(client: SyncPrefectClient) -> bool:
    with suppress(ObjectNotFound):
        client.read_global_concurrency_limit_by_name(LIMIT)
        return True
    return False


def deploy() -> None:
    """Register every deployment of ``prefect.yaml``. Raises CalledProcessError with Prefect's message shown."""
    subprocess.run([sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all"], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Work pools, limits, automations, deployments.")
    parser.add_argument(
        "--gpus", type=at_least(0), help="GPUs to share out (the limit of the pool and of stages); else as it is"
    )
    asked = parser.parse_args()
    try:
        require_server()
    except NoServer as error:
        sys.exit(f"provision: {error}")
    provision(asked.gpus)
    deploy()


if __name__ == "__main__":
    main()
