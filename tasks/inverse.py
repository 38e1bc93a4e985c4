"""InversePRM between the stages (paper A): ``label`` builds D⁺ and D⁻, ``prm`` trains on them. No outcome is read.

D⁺ is the demonstrations, with next actions resampled from π_{i−1}; D⁻ is the rollouts of all iterations so far. Those
of earlier iterations are no dependency of their own in dvc.yaml: π_{i−1}, which is, was made of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from agentprm_core.credit.inverse import INVERSE, RESAMPLED, assemble_inverse
from agentprm_core.datasets import episodes_from_table, read_table, write_table
from agentprm_core.improve.proposals import Proposer
from agentprm_core.policy.models import Checkpoint
from agentprm_core.prm.inverse import InverseEpisode
from agentprm_core.types import EPISODES, Episode
from tasks.frame import layout
from tasks.frame.compute import load_player, use
from tasks.frame.stage import Stage, StageError
from tasks.frame.suites import inverse_suite

_PORTION = 512
"""Demonstrations whose actions are drawn as one call."""
_TOKENS = 4096
"""Of demonstrations read together."""

Sides = tuple[list[InverseEpisode], list[InverseEpisode]]
"""Training and held-out games."""


def label_inverse(stage: Stage) -> None:
    """Write the rows of D⁺ and D⁻, in the labels' place."""
    params, i = stage.params, stage.iteration
    stage.read(layout.DEMOS, layout.policy(stage.prev))
    use(params.compute)
    policy = load_player(layout.policy(stage.prev), params.compute)
    rows = assemble_inverse(
        layout.DEMOS,
        [layout.episodes(j) for j in range(1, i + 1)],
        _resampled(stage, policy),
        validation_share=params.label.validation_share,
        seed=params.seed,
    )
    stage.gate(inverse_suite(rows))
    write_table(rows, layout.inverse(i))
    stage.report(_figures(rows))
    stage.wrote(layout.inverse(i))


def inverse_episodes(stage: Stage) -> Sides:
    """Episodes of D⁺ and D⁻ as the stage ``label`` put them together.

    Raises:
        StageError: rows of other episodes than lie there now.
    """
    rows = read_table(layout.inverse(stage.iteration), INVERSE)
    sides: Sides = ([], [])
    for dataset in range(stage.iteration + 1):
        path = layout.episodes(dataset) if dataset else layout.DEMOS
        own = rows.filter(pc.equal(rows["dataset"], dataset))
        game, number, split = (own[name].to_pylist() for name in ("game_id", "episode", "split"))
        after = list(zip(own["next_action"].to_pylist(), own["next_reason"].to_pylist()))
        weight_N, first = own["weight"].to_numpy(), 0
        for episode in episodes_from_table(read_table(path, EPISODES)):
            end = first + episode.length - episode.start
            if end > len(after) or (game[first], number[first]) != (episode.game_id, episode.index):
                raise _others(stage, path)
            resampled = after[first : end - 1] if dataset == 0 else ()
            item = InverseEpisode(episode, dataset == 0, float(weight_N[first]), resampled)
            sides[split[first] == "validation"].append(item)
            first = end
        if first != len(after):
            raise _others(stage, path)
    return sides


def _others(stage: Stage, path: Path) -> StageError:
    return StageError(
        f"{layout.inverse(stage.iteration)}: rows of other episodes than those of {path}. "
        f"Make them again: dvc repro label@{stage.iteration}"
    )


def _resampled(stage: Stage, policy: Checkpoint) -> pa.Table:
    """Rows of RESAMPLED: what π_{i−1} would do at every demonstrated state but the first of each episode."""
    params = stage.params
    proposer = Proposer(
        policy,
        temperature=params.rollout.temperature,
        constrained=params.rollout.constrained,
        max_action_tokens=params.model.max_action_tokens,
        batch_tokens=_TOKENS,
    )
    demos = read_table(layout.DEMOS, EPISODES)
    found: dict[str, list] = {name: [] for name in RESAMPLED.names}
    for numbered in _portions(demos):
        drawn = proposer.propose([demo for _, demo in numbered], 1, [(stage.seed, number) for number, _ in numbered])
        for (_, demo), of_demo in zip(numbered, drawn):
            for turn in range(demo.start + 1, demo.length):
                (proposal,) = of_demo[turn]
                values = (demo.game_id, demo.index, turn, proposal.action, proposal.reason)
                for name, value in zip(RESAMPLED.names, values):
                    found[name].append(value)
    return pa.table(found, schema=RESAMPLED)


def _portions(demos: pa.Table) -> Iterator[list[tuple[int, Episode]]]:
    """The demonstrations with their numbers, some at a time."""
    portion: list[tuple[int, Episode]] = []
    for numbered in enumerate(episodes_from_table(demos)):
        portion.append(numbered)
        if len(portion) == _PORTION:
            yield portion
            portion = []
    if portion:
        yield portion


def _figures(rows: pa.Table) -> dict:
    """Episodes and turns of both classes, and how often the policy would do what the expert does next."""
    table = pl.from_arrow(rows.drop_columns(["next_reason"]))
    expert, learner = table.filter("expert"), table.filter(~pl.col("expert"))
    following = expert.with_columns(own=pl.col("action").shift(-1)).filter(~pl.col("terminal"))
    return {
        "expert_episodes": int(expert["terminal"].sum()),
        "expert_turns": len(expert),
        "learner_episodes": int(learner["terminal"].sum()),
        "learner_turns": len(learner),
        "as_the_expert": (following["next_action"] == following["own"]).mean(),
    }
