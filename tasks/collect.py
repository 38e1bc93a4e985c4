"""Stage ``collect``: what the method's update learns from (:mod:`agentprm_core.methods`), as a dataset with a gate.

Expert iteration searches with the PRM choosing, online DPO draws its first pairs, RFT picks won episodes, GRPO and
GiGPO compute advantages. A method that follows a PRM refuses one that has not shown what ``critic.require`` asks. Then
nothing is collected but the refusal (:mod:`agentprm_core.methods.refused`)."""

from __future__ import annotations

from agentprm_core.datasets import write_table
from agentprm_core.methods.refused import collect
from tasks.frame import layout
from tasks.frame.given import given
from tasks.frame.stage import Stage, run_stage


def work(stage: Stage) -> None:
    """Make what the update learns from."""
    config, i = stage.params.method, stage.iteration
    stage.read(layout.rollouts(i), layout.policy(stage.prev), layout.prm(i))
    found = collect(config, given(stage))
    stage.gate(found.checks)
    write_table(found.table, layout.collected(i))
    stage.report(found.figures | found.played.figures)
    stage.wrote(layout.collected(i))


if __name__ == "__main__":
    run_stage("collect", work, iterated=True, gated=True)
