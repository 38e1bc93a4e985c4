"""Stage ``rollout``: π_{i−1} plays training games, and branches of some states, for the PRM to learn from.

Games are drawn by the seed once for the whole campaign; iteration i takes its share of that order and goes on where
the one before it stopped. Then it plays the guard games, an episode each, and branches of them: nothing is trained on
these, the PRM is judged on them. A killed run plays only what is missing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from agentprm_core.datasets import atomic_write, episodes_from_table, read_table, write_table
from agentprm_core.draws import share_of
from agentprm_core.drift import rollouts_drift
from agentprm_core.kept import digest
from agentprm_core.methods.base import Given
from agentprm_core.overlap import of_rollouts, validation_side
from agentprm_core.plays import Plays, Resets, branches, play_figures, rollouts
from agentprm_core.shards.base import Shards
from agentprm_core.suites import rollouts_suite
from agentprm_core.suites_played import branches_suite
from agentprm_core.types import EPISODES
from tasks.frame import layout
from tasks.frame.given import given
from tasks.frame.servers import servers
from tasks.frame.stage import Stage, run_stage


def work(stage: Stage) -> None:
    """Let the policy play, G episodes a game."""
    params, section, data = stage.params, stage.params.rollout, given(stage)
    stage.read(layout.games("train"), layout.DEMOS, layout.policy(stage.prev))
    games = share_of(data.training_games, section.games, seed=params.seed, iteration=stage.iteration)
    overlap, drawn_apart = of_rollouts(data, [game.id for game in games])
    play = replace(data.play, servers=servers(params))
    plays = Plays(section.episodes_per_game, section.temperature, section.explore, section.branch, play, stage.seed)
    demos = {}
    if isinstance(section.explore, Resets):
        demos = {demo.game_id: demo for demo in data.demonstrations}
    where = {"scratch": stage.scratch / _decides(stage, data), "shards": data.shards}
    table = rollouts(plays, data.policy, games, demos, iteration=stage.iteration, **where)
    checks = rollouts_suite(table, policy=data.policy.digest, episodes_per_game=section.episodes_per_game)
    if (before := layout.episodes(stage.prev)).exists():
        checks += rollouts_drift(read_table(before, EPISODES), table)
    stage.gate([*checks, drawn_apart])
    episodes, by_id = list(episodes_from_table(table)), {game.id: game for game in games}
    held_out = validation_side(data, by_id)
    training, validation = ([one for one in episodes if (one.game_id in held_out) == side] for side in (False, True))
    tried = branches(plays, data.policy, training, validation, by_id, **where)
    if checks := branches_suite(tried, table):
        stage.gate(checks)
    guard = _guard(stage, plays, data, **where) if section.branch.validation_states else None
    with atomic_write(layout.rollouts(stage.iteration)) as folder:
        folder.mkdir()
        write_table(table, folder / layout.episodes(stage.iteration).name)
        write_table(tried, folder / layout.branches(stage.iteration).name)
        if guard:
            write_table(guard.episodes, folder / layout.guard_episodes(stage.iteration).name)
            write_table(guard.branches, folder / layout.guard_branches(stage.iteration).name)
    figures = play_figures(episodes, tried, {game.id: play.turns(game) for game in games}) | overlap
    if guard:
        figures["guard"] = guard.figures
        for played in ("episodes_played", "turns_played"):
            figures[played] += guard.figures[played]
    stage.report(figures)
    stage.wrote(layout.rollouts(stage.iteration))


@dataclass(frozen=True)
class _Guard:
    episodes: pa.Table
    branches: pa.Table
    figures: dict


def _guard(stage: Stage, plays: Plays, data: Given, *, scratch: Path, shards: Shards) -> _Guard | None:
    """What the policy plays in guard games; None where the campaign has none."""
    games = data.guard_games
    if not games:
        return None
    plays, where = replace(plays, episodes_per_game=1, explore=None), {"scratch": scratch / "guard", "shards": shards}
    table = rollouts(plays, data.policy, games, {}, iteration=stage.iteration, **where)
    episodes = list(episodes_from_table(table))
    tried = branches(plays, data.policy, [], episodes, {game.id: game for game in games}, **where)
    if checks := branches_suite(tried, table):
        stage.gate([replace(check, name=f"guard {check.name}") for check in checks])
    turns = {game.id: plays.settings.turns(game) for game in games}
    return _Guard(table, tried, play_figures(episodes, tried, turns))


def _decides(stage: Stage, data: Given) -> str:
    """Of exactly this play: other parameters or another policy have another."""
    params = stage.params
    return digest(
        params.seed, params.env, params.rollout, params.compute, params.model, params.games, data.policy.digest
    )


if __name__ == "__main__":
    run_stage("rollout", work, iterated=True, gated=True)
