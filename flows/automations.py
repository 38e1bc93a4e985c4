"""Automations on the Prefect server: what happens to a run that crashed, failed or is late.

A worker that is killed leaves its runs "Running" for ever. Each flow run sends a heartbeat (``prefect.toml`` says how
often); when none, and no end, has come for four of them, the run is set to Crashed. A campaign that crashed is started
again, at most :data:`STARTS` times in all. Who is told of it is a notification block named :data:`BLOCK`.
"""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState, SendNotification
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.settings import get_current_settings

_BODY = """{{ flow_run.state.message }}
{{ flow_run|ui_url }}"""
MISSED_HEARTBEATS = 4
STARTS = 4
"""How often a campaign is started in all. After that it stays Crashed: what ends it each time would end it again."""
WAIT_SECONDS = 20
"""Between the crash and the next start."""
_ON_ITS_WAY = ("Scheduled", "AwaitingRetry", "Pending", "Running", "Cancelled", "Completed", "Failed")
"""States of a crashed run that somebody has started again."""
BLOCK = "agentprm"
"""The name of the notification block: any of Prefect's that notify (Slack, mail, a webhook)."""
TOLD = {
    "tell-failed": ("Tells of a campaign or iteration that failed.", "prefect.flow-run.Failed"),
    "tell-crashed": ("Tells of a campaign or iteration that crashed.", "prefect.flow-run.Crashed"),
    "tell-late": ("Tells of a campaign or iteration that no worker has taken.", "prefect.flow-run.Late"),
}


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
                message=f"No heartbeat for {MISSED_HEARTBEATS * heartbeat}: its process is gone.",
            )
        ],
    )


def start_again_automation() -> AutomationCore:
    """A crashed run of a deployment of ``campaign`` is scheduled again: the same run, and so the same campaign, which
    goes on from its snapshot. Prefect counts its starts. It waits: a worker that is given a run back while it still
    tidies up after it would end with an error."""
    return AutomationCore(
        name="start-again",
        description=f"Starts a crashed campaign again, which goes on; {STARTS} starts at most.",
        trigger=EventTrigger(
            after={"prefect.flow-run.Crashed"},
            expect={f"prefect.flow-run.{state}" for state in _ON_ITS_WAY},
            match={
                "prefect.resource.id": "prefect.flow-run.*",
                "prefect.run-count": [str(count) for count in range(1, STARTS)],
            },
            match_related=[_related("flow", "campaign"), {"prefect.resource.role": "deployment"}],
            for_each={"prefect.resource.id"},
            posture=Posture.Proactive,
            threshold=1,
            within=timedelta(seconds=WAIT_SECONDS),
        ),
        actions=[ChangeFlowRunState(state=StateType.SCHEDULED, name="AwaitingRetry", message="Crashed: started again")],
    )


def notifying_automation(name: str, block: UUID) -> AutomationCore:
    """One of :data:`TOLD`: a campaign or an iteration came to that, and ``block`` is told."""
    description, event = TOLD[name]
    subject = "{{ flow.name }} {{ flow_run.name }}: {{ flow_run.state.name }}"
    return AutomationCore(
        name=name,
        description=description,
        trigger=EventTrigger(
            expect={event},
            match={"prefect.resource.id": "prefect.flow-run.*"},
            match_related=_related("flow", "campaign", "iteration"),
            for_each={"prefect.resource.id"},
            posture=Posture.Reactive,
            threshold=1,
        ),
        actions=[SendNotification(block_document_id=block, subject=subject, body=_BODY)],
    )


def install(client: SyncPrefectClient) -> None:
    """Put the automations on the server, in place of those of the same names. Says so where nobody is told."""
    _put(client, zombie_automation())
    _put(client, start_again_automation())
    block = _block(client)
    for name in TOLD:
        if block is not None:
            _put(client, notifying_automation(name, block))
        else:
            for installed in client.read_automations_by_name(name):
                client.delete_automation(installed.id)
    if block is None:
        print(f"nobody is told of campaigns that fail, crash or are late: there is no notification block {BLOCK!r}")


def _block(client: SyncPrefectClient) -> UUID | None:
    for document in client.read_block_documents(limit=200, include_secrets=False):
        schema = document.block_schema
        if document.name == BLOCK and schema is not None and "notify" in schema.capabilities:
            return document.id
    return None


def _put(client: SyncPrefectClient, automation: AutomationCore) -> None:
    installed = client.read_automations_by_name(automation.name)
    if installed:
        client.update_automation(installed[0].id, automation)
    else:
        client.create_automation(automation)


def _related(role: str, *names: str) -> dict[str, str | list[str]]:
    return {"prefect.resource.role": role, "prefect.resource.name": list(names)}
