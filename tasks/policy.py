"""Stage ``policy``: π_i from π_{i−1}, what it visited, and the PRM that tells its better actions from its worse.

``policy.method`` says how: :mod:`tasks.updates`. ``online_dpo`` refuses a PRM that has not shown what params.yaml
requires (:mod:`tasks.trust`), as the search before ``expert_iteration`` does; the pairs it begins with are written and
pass a gate, later ones are drawn from the policy as it changes.
"""

from __future__ import annotations

from agentprm_core.datasets import atomic_write, write_table
from agentprm_core.policy.models import load_checkpoint, save_checkpoint
from tasks.frame import layout
from tasks.frame.compute import use
from tasks.frame.lineage import parents
from tasks.frame.stage import Stage, run_stage, write_json
from tasks.trust import trusted
from tasks.updates import UPDATES
from tasks.watching import tell


def work(stage: Stage) -> None:
    """Improve the policy."""
    use(stage.params.compute)
    i, method = stage.iteration, stage.params.policy.method
    stage.read(layout.prm(i), layout.policy(stage.prev))
    policy = load_checkpoint(layout.policy(stage.prev), device=stage.params.compute.device)
    shown = trusted(stage, policy) if method == "online_dpo" else {}
    model, figures, pairs = UPDATES[method](stage, policy)
    curve = figures.pop("curve")
    with atomic_write(layout.policy(i)) as folder:
        digest = save_checkpoint(model, policy.tokenizer, folder, instruction=policy.renderer.instruction)
    write_table(pairs, layout.pairs(i))
    write_json(curve, layout.PLOTS / f"policy-{i}.json")
    stage.report_training({**figures, **shown, "last": curve[-1]}, curve)
    if "monitor" in figures:
        tell(stage, figures["monitor"])
    with stage.tracking():
        stage.tracker.register_policy(layout.policy(i), digest, i, parents(stage.params, i))
    stage.wrote(layout.policy(i), layout.pairs(i))


if __name__ == "__main__":
    run_stage("policy", work, iterated=True, gated=True)
