"""What a server knows of this project after ``python -m flows.provision``, and after a second time."""

from __future__ import annotations

from datetime import timedelta

import pytest
from prefect.client.orchestration import get_client
from prefect.settings import get_current_settings

from flows.provision import CAMPAIGN_POOL, CPU_POOL, GPU_POOL, deploy, provision
from tests.flows.conftest import ROOT

pytestmark = [pytest.mark.usefixtures("prefect_server"), pytest.mark.xdist_group("prefect")]


def test_pools_limits_and_the_zombie_automation_are_there_once() -> None:
    for gpus in (1, 2, None):
        provision(gpus)
    with get_client(sync_client=True) as client:
        limits = {pool.name: pool.concurrency_limit for pool in client.read_work_pools()}
        assert limits == {CPU_POOL: None, CAMPAIGN_POOL: None, GPU_POOL: 2}
        assert client.read_global_concurrency_limit_by_name("gpu").limit == 2
        (zombies,) = client.read_automations()
    assert zombies.trigger.within >= 3 * timedelta(seconds=60)


def test_every_deployment_registers_and_the_schedule_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    provision(1)
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PREFECT_API_URL", get_current_settings().api.url)
    deploy()
    with get_client(sync_client=True) as client:
        deployments = {deployment.name: deployment for deployment in client.read_deployments()}
    names = {"campaign", "iteration", "campaign-gpu", "iteration-gpu", "campaign-on-workers", "stage", "stage-gpu"}
    assert set(deployments) == names
    (nightly,) = deployments["campaign"].schedules
    assert (nightly.active, nightly.parameters) == (False, {"seed": "new"})
    assert deployments["campaign-gpu"].global_concurrency_limit is None, "a run on each GPU would queue"
    assert str(ROOT) not in str([(d.path, d.pull_steps) for d in deployments.values()])
    form = deployments["campaign"].parameter_openapi_schema["properties"]
    assert form["profiles"]["description"] == "profiles and single keys, from left to right: smoke, rollout.games=900."
    assert {"seed", "world", "name", "hours"} <= set(form)
    assert deployments["campaign-gpu"].work_pool_name == GPU_POOL
    assert not deployments["campaign-gpu"].job_variables, "each worker's GPU is its own"
