"""What a Prefect server has to know of this project: work pools, the GPU limit, automations, deployments.

    python -m flows.provision --gpus 1

Can be run again at any time; what is there is brought up to date. ``make ui`` runs it against its own server.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from contextlib import suppress

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
from prefect.exceptions import ObjectAlreadyExists
from prefect.workers.process import ProcessWorker

from flows import automations

CPU_POOL = "agentprm-cpu"
GPU_POOL = "agentprm-gpu"


def _provide_pool(client: SyncPrefectClient, name: str, description: str, limit: int) -> None:
    template = ProcessWorker.get_default_base_job_template()
    with suppress(ObjectAlreadyExists):
        client.create_work_pool(WorkPoolCreate(name=name, type="process", base_job_template=template))
    client.update_work_pool(name, WorkPoolUpdate(description=description, concurrency_limit=limit))


def provision(gpus: int) -> None:
    """Work pools (one run at a time on processors, one a GPU on GPUs), the tag limit ``gpu`` and the automations."""
    with get_client(sync_client=True) as client:
        _provide_pool(client, CPU_POOL, "Runs on this machine's processors.", limit=1)
        _provide_pool(
            client, GPU_POOL, "Runs on the GPU that CUDA_VISIBLE_DEVICES in its job variables names.", limit=gpus
        )
        client.create_concurrency_limit(tag="gpu", concurrency_limit=gpus)
        automations.install(client)


def deploy() -> None:
    """Register every deployment of ``prefect.yaml``. Raises CalledProcessError with Prefect's message shown."""
    subprocess.run([sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all"], check=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Work pools, limits, automations, deployments.")
    parser.add_argument("--gpus", type=int, default=1, help="GPUs to share out (the limit of pool and tag)")
    provision(parser.parse_args().gpus)
    deploy()
