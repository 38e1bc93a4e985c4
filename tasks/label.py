"""Stage ``label``: what each turn of the rollouts was worth, split by game into training and validation.

Refuses rollouts that another policy than π_{i−1} played.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from agentprm_core.credit.monte_carlo import label_monte_carlo
from agentprm_core.datasets import read_table
from agentprm_core.policy.models import checkpoint_digest
from agentprm_core.types import EPISODES, LABELS
from tasks import layout
from tasks.stage import Stage, StageError, run_stage
from tasks.suites import labels_suite


def work(stage: Stage) -> None:
    """Label the rollouts."""
    section = stage.params.label
    source, out = layout.episodes(stage.iteration), layout.labels(stage.iteration)
    stage.read(source)
    rollouts = read_table(source, EPISODES)
    _of_this_policy(rollouts, stage)
    aside = stage.scratch / "labels.parquet"
    figures = label_monte_carlo(
        source,
        aside,
        gamma=section.gamma,
        key=section.key,
        discount_from=section.discount_from,
        validation_share=section.validation_share,
        seed=stage.params.seed,
        outcome=section.outcome,
    )
    stage.gate(labels_suite(read_table(aside, LABELS), rollouts.num_rows, section.min_std))
    out.parent.mkdir(parents=True, exist_ok=True)
    aside.rename(out)
    stage.report(figures)
    stage.wrote(out)


def _of_this_policy(rollouts: pa.Table, stage: Stage) -> None:
    """Raises StageError unless π_{i−1} played every episode."""
    source, digest = layout.policy(stage.prev), checkpoint_digest(layout.policy(stage.prev))
    others = sorted(set(pc.unique(rollouts["policy"]).to_pylist()) - {digest})
    if others:
        raise StageError(
            f"{layout.episodes(stage.iteration)}: rollouts of another policy ({', '.join(others)}); "
            f"{source} is {digest}. Play them again: dvc repro rollout@{stage.iteration}"
        )


if __name__ == "__main__":
    run_stage("label", work, iterated=True, gated=True)
