"""What a server knows of this project after ``python -m flows.provision``, and after a second time."""

from __future__ import annotations

from datetime import timedelta

import pytest
from prefect.client.orchestration import get_client
from prefect.settings import get_current_settings

from flows.provision import CPU_POOL, GPU_POOL, deploy, provision
from tests.flows.conftest import ROOT

pytestmark = [pytest.mark.usefixtures("prefect_server"), pytest.mark.xdist_group("prefect")]


def test_pools_limits_and_the_zombie_automation_are_there_once() -> None:
    for gpus in (1, 2):
        provision(gpus)
    with get_client(sync_client=True) as client:
        assert {pool.name: pool.concurrency_limit for pool in client.read_work_pools()} == {CPU_POOL: 1, GPU_POOL: 2}
        assert client.read_concurrency_limit_by_tag("gpu").concurrency_limit == 2
        (zombies,) = client.read_automations()
    assert zombies.trigger.within >= 3 * timedelta(seconds=60)


def test_every_deployment_registers_and_the_schedule_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    provision(1)
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PREFECT_API_URL", get_current_settings().api.url)
    deploy()
    with get_client(sync_client=True) as client:
        deployments = {deployment.name: deployment for deployment in client.read_deployments()}
    assert set(deployments) == {"campaign", "iteration", "campaign-gpu", "iteration-gpu"}
    assert [schedule.active for schedule in deployments["campaign"].schedules] == [False]
    assert deployments["campaign-gpu"].work_pool_name == GPU_POOL
    assert deployments["campaign-gpu"].job_variables["env"] == {"CUDA_VISIBLE_DEVICES": "0"}
