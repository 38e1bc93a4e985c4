"""Stage ``label``: the critic says what each turn of the rollouts was worth (:mod:`agentprm_core.methods`).

Refuses rollouts that another policy than the one before played.
"""

from __future__ import annotations

import pyarrow.parquet as pq

from agentprm_core.datasets import write_table
from agentprm_core.drift import labels_drift
from agentprm_core.methods.critics import critic_module
from agentprm_core.policy.models import checkpoint_digest
from tasks.frame import layout
from tasks.frame.given import given
from tasks.frame.stage import Stage, StageError, run_stage


def work(stage: Stage) -> None:
    """Label the rollouts."""
    config, out = stage.params.critic, layout.labels(stage.iteration)
    stage.read(layout.episodes(stage.iteration), layout.policy(stage.prev))
    for iteration in range(1, stage.iteration + 1):
        check_player(iteration)
    found = critic_module(config.name).label(config, given(stage))
    expected = list(found.checks)
    if (before := layout.labels(stage.prev)).exists():
        expected += labels_drift(pq.read_table(before), found.table)
    stage.gate(expected)
    write_table(found.table, out)
    if "coverage" in found.figures:
        _draw(stage, found.figures["coverage"])
    stage.report(found.figures)
    stage.wrote(out)


def check_player(iteration: int) -> None:
    """Raises StageError unless π_{i−1} played every episode of the iteration."""
    path, source = layout.episodes(iteration), layout.policy(iteration - 1)
    digest = checkpoint_digest(source)
    players = pq.read_table(path, columns=["policy"], read_dictionary=["policy"])["policy"]  # one digest, many rows
    others = sorted(set(players.unique().to_pylist()) - {digest})
    if others:
        raise StageError(
            f"{path}: rollouts of another policy ({', '.join(others)}); "
            f"{source} is {digest}. Play them again: dvc repro rollout@{iteration}"
        )


def _draw(stage: Stage, report: dict) -> None:
    from tasks.report.figures import coverage

    picture = stage.scratch / f"coverage-{stage.iteration}.png"
    coverage(report, picture)
    with stage.tracking():
        stage.tracker.log_files(picture, folder="plots")


if __name__ == "__main__":
    run_stage("label", work, iterated=True, gated=True)
