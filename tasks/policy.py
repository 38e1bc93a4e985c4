"""Stage ``policy``: the method makes π_i of π_{i−1} and of what it collected (:mod:`agentprm_core.methods`).

Where PRM_i was refused there is nothing to learn from, and π_i is a copy of π_{i−1}."""

from __future__ import annotations

from agentprm_core.datasets import atomic_write
from agentprm_core.improve.monitor import described
from agentprm_core.methods.methods import method_module
from agentprm_core.methods.refused import Refusal, copy_policy, refusal_of
from agentprm_core.policy.models import save_checkpoint
from tasks.frame import layout
from tasks.frame.given import given
from tasks.frame.lineage import parents
from tasks.frame.stage import Stage, run_stage, write_json
from tasks.frame.tracking import PRM_REFUSED

ALARM = "reward_hacking"
"""A tag of the stage's MLflow run: ``none``, or the signals that fired with their steps."""


def work(stage: Stage) -> None:
    """Improve the policy."""
    config, i, data = stage.params.method, stage.iteration, given(stage)
    stage.read(layout.collected(i), layout.policy(stage.prev))
    if refusal := refusal_of(layout.collected(i)):
        _keep(stage, refusal)
        return
    updated = method_module(config.name).update(config, data)
    curve = updated.figures.pop("curve")
    told = {"prompt": data.trainee.renderer.prompt, "world": data.play.world}
    with atomic_write(layout.policy(i)) as folder:
        digest = save_checkpoint(updated.model, data.trainee.tokenizer, folder, **told)
    write_json(curve, layout.PLOTS / f"policy-{i}.json")
    monitor = {"monitor": updated.alarm} if updated.alarm else {}
    stage.report_training({**updated.figures, **updated.played.figures, **monitor, "last": curve[-1]}, curve)
    if updated.alarm:
        _tell(stage, updated.alarm)
    with stage.tracking():
        stage.tracker.register_policy(layout.policy(i), digest, i, parents(stage.params, i))
    stage.wrote(layout.policy(i))


def _keep(stage: Stage, refusal: Refusal) -> None:
    """π_i is π_{i−1}."""
    i, said = stage.iteration, str(refusal)
    with atomic_write(layout.policy(i)) as folder:
        digest = copy_policy(layout.policy(stage.prev), folder, refusal)
    write_json([], layout.PLOTS / f"policy-{i}.json")
    print(f"{stage.name}: {said}", flush=True)
    stage.report({"refused": said, "steps": 0})
    with stage.tracking():
        stage.tracker.tag(PRM_REFUSED, said)
        stage.tracker.register_policy(layout.policy(i), digest, i, parents(stage.params, i))
    stage.wrote(layout.policy(i))


def _tell(stage: Stage, alarm: dict) -> None:
    """What a monitor found, where people look: a line of the stage, a tag and curves in MLflow."""
    said = described(alarm)
    if alarm["flag"]:
        print(f"{stage.name}: reward hacking suspected: {said}", flush=True)
    with stage.tracking():
        stage.tracker.tag(ALARM, said)
        stage.tracker.log_curve("monitor", alarm["looks"])


if __name__ == "__main__":
    run_stage("policy", work, iterated=True)
