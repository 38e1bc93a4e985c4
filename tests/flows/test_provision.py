"""What a server knows of this project after ``python -m flows.provision``, and after a second time."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
from prefect.blocks.notifications import SlackWebhook
from prefect.client.orchestration import get_client
from prefect.exceptions import PrefectHTTPStatusError
from prefect.settings import get_current_settings
from prefect.states import Crashed, Pending, Running

from flows.automations import BLOCK, STARTS, TOLD, WAIT_SECONDS
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
        installed = {automation.name: automation for automation in client.read_automations()}
    assert set(installed) == {"zombies", "start-again"}
    assert installed["zombies"].trigger.within >= 3 * timedelta(seconds=60)


def test_somebody_is_told_once_there_is_a_block(capsys: pytest.CaptureFixture) -> None:
    provision()
    assert "nobody is told of campaigns that fail, crash or are late" in capsys.readouterr().out
    block = SlackWebhook(url="http://127.0.0.1:9/none")
    block_id = block.save(BLOCK, overwrite=True)
    provision()
    assert "nobody" not in capsys.readouterr().out
    with get_client(sync_client=True) as client:
        told = {automation.name: automation for automation in client.read_automations() if automation.name in TOLD}
        assert {automation.actions[0].block_document_id for automation in told.values()} == {block_id}
        assert set(told) == set(TOLD)
        client.delete_block_document(block_id)
    provision()
    with get_client(sync_client=True) as client:
        assert not {automation.name for automation in client.read_automations()} & set(TOLD)


@pytest.mark.slow
def test_a_crashed_campaign_is_started_again_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    provision()
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PREFECT_API_URL", get_current_settings().api.url)
    deploy()
    with get_client(sync_client=True) as client:
        deployment = client.read_deployment_by_name("campaign/campaign")
        run = client.create_flow_run_from_deployment(deployment.id, parameters={"profiles": ["smoke"]})
        for start, seconds in ((1, 90), (STARTS, 2 * WAIT_SECONDS)):
            while client.read_flow_run(run.id).run_count < start:
                client.set_flow_run_state(run.id, Running(), force=True)
                client.set_flow_run_state(run.id, Pending(), force=True)
            client.set_flow_run_state(run.id, Crashed(), force=True)
            deadline = time.monotonic() + seconds
            while (now := client.read_flow_run(run.id)).state.is_crashed() and time.monotonic() < deadline:
                time.sleep(0.2)
            assert now.run_count == start
            assert now.state.name == ("AwaitingRetry" if start < STARTS else "Crashed")
            assert (now.next_scheduled_start_time is not None) == (start < STARTS), "a worker would not take it"
        assert (now.name, now.parameters) == (run.name, run.parameters)


def test_parameters_that_are_not_offered_are_refused_before_a_run_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    provision()
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PREFECT_API_URL", get_current_settings().api.url)
    deploy()
    given = [{"profiles": ["smokes"]}, {"world": "chess"}, {"overrides": ["seed"]}, {"hours": 0}, {"name": "../up"}]
    with get_client(sync_client=True) as client:
        deployment = client.read_deployment_by_name("campaign/campaign")
        before = len(client.read_flow_runs())
        for parameters in given:
            with pytest.raises(PrefectHTTPStatusError) as refused:
                client.create_flow_run_from_deployment(deployment.id, parameters=parameters)
            (key,) = parameters
            assert key in refused.value.response.json()["detail"]
        assert len(client.read_flow_runs()) == before


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
    assert all(said["description"] for said in form.values())
    assert form["profiles"]["items"]["enum"] == sorted(path.stem for path in (ROOT / "profiles").glob("*.yaml"))
    assert form["world"]["anyOf"][0]["enum"] == ["all_worlds", "arithmetic", "babyai", "textcraft", "webshop"]
    assert set(form) >= {"overrides", "seed", "name", "hours"}
    assert deployments["campaign-gpu"].work_pool_name == GPU_POOL
    assert not deployments["campaign-gpu"].job_variables, "each worker's GPU is its own"
