"""Automations on the Prefect server: what happens to a run whose process died without a word.

A worker that is killed leaves its runs "Running" for ever. Each flow run sends a heartbeat (``prefect.toml`` says how
often); when none, and no end, has come for four of them, the run is set to Crashed and can be started again.
"""

from __future__ import annotations

from datetime import timedelta

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.settings import get_current_settings

MISSED_HEARTBEATS = 4


def zombie_automation() -> AutomationCore:
    """Crashed is what a flow run becomes when MISSED_HEARTBEATS heartbeats in a row stayed away."""
    heartbeat = timedelta(seconds=get_current_settings().flows.heartbeat_frequency)
    return AutomationCore(
        name="zombies",
        description="Sets a flow run to Crashed when its heartbeat stops.",
        trigger=EventTrigger(
            after={"prefect.flow-run.heartbeat"},
            expect={
                "prefect.flow-run.heartbeat",
                "prefect.flow-run.Completed",
                "prefect.flow-run.Failed",
                "prefect.flow-run.Cancelled",
                "prefect.flow-run.Crashed",
            },
            match={"prefect.resource.id": "prefect.flow-run.*"},
            for_each={"prefect.resource.id"},
            posture=Posture.Proactive,
            threshold=1,
            within=MISSED_HEARTBEATS * heartbeat,
        ),
        actions=[
            ChangeFlowRunState(
                state=StateType.CRASHED,
                message=f"No heartbeat for {MISSED_HEARTBEATS * heartbeat}: its process is gone. Run it again.",
            )
        ],
    )


def install(client: SyncPrefectClient) -> None:
    """Put the automation on the server, in place of one of the same name."""
    automation = zombie_automation()
    installed = client.read_automations_by_name(automation.name)
    if installed:
        client.update_automation(installed[0].id, automation)
    else:
        client.create_automation(automation)
