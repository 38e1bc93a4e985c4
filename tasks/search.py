"""Stage ``search``: beam search with π_{i−1} under PRM_i on training games, for ``policy.method: expert_iteration``.

The search is the expert that the policy then imitates (expert iteration, arXiv 1705.08439): what choosing by the PRM
wins, the policy learns to win without it. Of width 1 it is Best-of-N that tries its choice in a clone of the world
first and does not go back to a state it has been in: policies lose games by walking in circles, and what they imitate
must show the way out. Games come from the other end of the campaign's order than the rollouts',
so that the PRM chooses where it was not trained, as far as there are so many. Other methods search nothing, and the
stage writes an empty table. Finished portions are kept in scratch: a killed search plays only what is missing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import pyarrow as pa

from agentprm_core.datasets import episodes_from_table, episodes_to_table, games_from_table, read_table, write_table
from agentprm_core.policy.models import Checkpoint
from agentprm_core.types import EPISODES, GAMES, Game
from tasks.frame import layout
from tasks.frame.compute import load_player, use
from tasks.frame.kept import kept
from tasks.frame.stage import Stage, run_stage
from tasks.frame.suites import rollouts_suite
from tasks.playing import DecodingConfig, outcomes_digest, play_games, way_of_rollouts
from tasks.rollout import share_of
from tasks.trust import trusted

_PORTIONS = 4
"""A kill costs one."""


def work(stage: Stage) -> None:
    """Let the policy search with the PRM choosing among its paths."""
    use(stage.params.compute)
    i, method = stage.iteration, stage.params.policy.method
    if method != "expert_iteration":
        print(f"{stage.name}: policy.method {method} imitates no search: nothing is played", flush=True)
        write_table(EPISODES.empty_table(), layout.searched(i))
        stage.report({"games": 0})
        return
    stage.read(layout.games("train"), layout.policy(stage.prev), layout.prm(i))
    policy = load_player(layout.policy(stage.prev), stage.params.compute)
    prm = load_player(layout.prm(i), stage.params.compute, "prm")
    shown = trusted(stage, policy)
    games = share_of(
        games_from_table(read_table(layout.games("train"), GAMES)), stage.params.search.games, stage, backwards=True
    )
    searched = search(stage, policy, prm, games)
    stage.gate(
        rollouts_suite(
            searched, policy=policy.digest, episodes_per_game=1, min_valid=stage.params.rollout.min_valid, searched=True
        )
    )
    write_table(searched, layout.searched(i))
    stage.report(_figures(searched) | shown)
    stage.wrote(layout.searched(i))


def search(stage: Stage, policy: Checkpoint, prm: Checkpoint, games: Sequence[Game]) -> pa.Table:
    """Rows of EPISODES: each game once."""
    section = stage.params.search
    how = {"temperature": section.temperature, "prior": section.prior, **section.beam.model_dump()}
    way = way_of_rollouts(stage, policy, method="beam", **how)
    compute, size = stage.params.compute, math.ceil(len(games) / _PORTIONS)
    tables = []
    for part in (games[at : at + size] for at in range(0, len(games), size)):
        name = outcomes_digest(policy, prm, part, way, stage.seed, compute.device, compute.threads)
        tables.append(
            kept(stage.scratch / f"{name}.parquet", EPISODES, partial(_played, stage, policy, prm, part, way))
        )
    return pa.concat_tables(tables)


def _played(stage: Stage, policy: Checkpoint, prm: Checkpoint, games: Sequence[Game], way: DecodingConfig) -> pa.Table:
    played = play_games(policy, prm, games, way, stage.seed)
    return episodes_to_table(played, iteration=stage.iteration, method=way.name, policy=policy.digest)


def _figures(searched: pa.Table) -> dict:
    episodes = list(episodes_from_table(searched))
    return {
        "games": len(episodes),
        "turns": searched.num_rows,
        "success": sum(episode.won for episode in episodes) / len(episodes),
        "mean_actions": sum(episode.length for episode in episodes) / len(episodes),
    }


if __name__ == "__main__":
    run_stage("search", work, iterated=True, gated=True)
