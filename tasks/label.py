"""Stage ``label``: what each turn of the rollouts was worth, split by game into training and validation.

``monte_carlo`` averages the returns of all visits to a state and action (paper A). ``branching`` plays on from every
turn (Math-Shepherd). ``gae`` takes its targets from the PRM while that is trained (paper B); its labels here are the
Monte Carlo ones, which the PRM is validated against. ``inverse`` reads no outcome and writes experts' and learners'
turns (:mod:`tasks.inverse`). Refuses rollouts that another policy than the one before played.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from agentprm_core.credit.branching import BRANCHING_LABELS, label_branching
from agentprm_core.credit.coverage import coverage_report
from agentprm_core.credit.monte_carlo import label_monte_carlo
from agentprm_core.credit.play_on import play_from_player
from agentprm_core.credit.shaping import scored_values, shaped_labels, visited_values
from agentprm_core.credit.turns import Turns, read_turns
from agentprm_core.datasets import episodes_from_table, games_from_table, read_table, write_table
from agentprm_core.policy.models import checkpoint_digest
from agentprm_core.prm.score import score_episodes
from agentprm_core.types import EPISODES, GAMES, LABELS
from agentprm_core.worlds import make_world
from tasks.frame import layout
from tasks.frame.compute import load_player, use
from tasks.frame.kept import digest as digest_of
from tasks.frame.kept import kept
from tasks.frame.stage import Stage, StageError, run_stage
from tasks.frame.suites import labels_suite
from tasks.inverse import label_inverse
from tasks.rollout import new_sampler

_SCORING_TOKENS = 4096
"""Of a forward pass."""
_PORTION = 64
"""Episodes whose branches are played as one, and that a kill can cost."""


def work(stage: Stage) -> None:
    """Label the rollouts."""
    section, out = stage.params.label, layout.labels(stage.iteration)
    stage.read(layout.episodes(stage.iteration))
    if section.credit == "inverse":
        for iteration in range(1, stage.iteration + 1):
            _digest_of_player(iteration)
        label_inverse(stage)
        return
    digest = _digest_of_player(stage.iteration)
    aside = stage.scratch / "labels.parquet"
    label = _branching if section.credit == "branching" else _monte_carlo
    figures = label(stage, digest, aside)
    labels = read_table(aside, LABELS)
    turns = pq.read_metadata(layout.episodes(stage.iteration)).num_rows
    stage.gate(labels_suite(labels, turns, section.min_std))
    write_table(labels, out)
    stage.report(figures)
    stage.wrote(out)


def _digest_of_player(iteration: int) -> str:
    """π_{i−1}'s digest. Raises StageError unless it played every episode of the iteration."""
    path, source = layout.episodes(iteration), layout.policy(iteration - 1)
    digest = checkpoint_digest(source)
    players = pq.read_table(path, columns=["policy"], read_dictionary=["policy"])["policy"]  # one digest, many rows
    others = sorted(set(pc.unique(players).to_pylist()) - {digest})
    if others:
        raise StageError(
            f"{path}: rollouts of another policy ({', '.join(others)}); "
            f"{source} is {digest}. Play them again: dvc repro rollout@{iteration}"
        )
    return digest


def _monte_carlo(stage: Stage, digest: str, aside: Path) -> dict:
    """Mean returns, shaped where params.yaml asks for it; and whether these labels can be trusted.

    The texts of the rollouts stream past: they are never in memory at once, unless another PRM is to read them.
    """
    from tasks.report.figures import coverage as draw_coverage

    section = stage.params.label
    figures = label_monte_carlo(
        layout.episodes(stage.iteration),
        aside,
        gamma=section.gamma,
        visit_key=section.key,
        validation_share=section.validation_share,
        seed=stage.params.seed,
        outcome=section.outcome,
        shaped=None if section.shaping == "none" else partial(_shaped, stage),
    )
    turns = read_turns(layout.episodes(stage.iteration))
    report = coverage_report(turns, visit_key=section.key, gamma=section.gamma, outcome=section.outcome)
    picture = stage.scratch / f"coverage-{stage.iteration}.png"
    draw_coverage(report, picture)
    with stage.tracking():
        stage.tracker.log_files(picture, folder="plots")
    return {**figures, "coverage": report}


def _shaped(stage: Stage, turns: Turns, q_N: np.ndarray, side_N: np.ndarray) -> np.ndarray:
    """Labels shaped with V^μ of the rollouts' own policy, or of the one whose PRM ``label.reference`` is."""
    section = stage.params.label
    if section.reference is None:
        value_N = visited_values(turns, visit_key=section.key, side_N=side_N, gamma=section.gamma)
    else:
        use(stage.params.compute)
        prm = load_player(section.reference, stage.params.compute, "prm")
        episodes = list(episodes_from_table(read_table(layout.episodes(stage.iteration), EPISODES)))
        scores = score_episodes(prm.model, prm.renderer, episodes, _SCORING_TOKENS)
        value_N = scored_values(np.concatenate(scores), turns, gamma=section.gamma)
    return shaped_labels(
        turns,
        q_N,
        value_N,
        shaping=section.shaping,
        alpha=section.alpha,
        gamma=section.gamma,
        visit_key=section.key,
        side_N=side_N,
    )


def _branching(stage: Stage, digest: str, aside: Path) -> dict:
    """Fresh rollouts from every turn. Finished portions are kept in scratch, as the stage ``rollout`` keeps its own."""
    params, section = stage.params, stage.params.label
    use(params.compute)
    policy = load_player(layout.policy(stage.prev), params.compute)
    rollouts = read_table(layout.episodes(stage.iteration), EPISODES)
    played = set(pc.unique(rollouts["game_id"]).to_pylist())
    games = {g.id: g for g in games_from_table(read_table(layout.games("train"), GAMES)) if g.id in played}
    episodes = list(episodes_from_table(rollouts))
    sampler = new_sampler(stage, policy, params.rollout.temperature)
    decides = (params.seed, params.env, params.rollout, params.compute, params.model, section, digest)
    scratch = stage.scratch / digest_of(*decides)
    label_portion = partial(
        label_branching,
        games=games,
        make_world=partial(make_world, params.env.world),
        play_from=play_from_player(sampler, world_name=params.env.world, max_turns=params.env.max_turns),
        rollouts=section.continuations,
        gamma=section.gamma,
        validation_share=section.validation_share,
        seed=params.seed,
        outcome=section.outcome,
    )
    labels = pa.concat_tables(
        kept(scratch / f"{at:06}.parquet", BRANCHING_LABELS, partial(label_portion, episodes[at : at + _PORTION]))
        for at in range(0, len(episodes), _PORTION)
    )
    write_table(labels.select(LABELS.names), aside)
    return {
        "turns": labels.num_rows,
        "plays": pc.sum(labels["visits"]).as_py(),
        "turns_played": pc.sum(labels["played"]).as_py(),
        "q_mean": pc.mean(labels["q"]).as_py(),
        "q_std": pc.stddev(labels["q"]).as_py(),
    }


if __name__ == "__main__":
    run_stage("label", work, iterated=True, gated=True)
