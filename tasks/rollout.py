"""Stage ``rollout``: π_{i−1} plays training games, and branches of some states, for the PRM to learn from.

Games are drawn by the seed once for the whole campaign; iteration i takes its share of that order and goes on where
the one before it stopped. Finished portions, of episodes and of branches, are kept in scratch: a killed run plays only
what is missing.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import pyarrow as pa

from agentprm_core.branches import BRANCHES, Point, play_branches, random_commands, undecided
from agentprm_core.credit.split import validation_games
from agentprm_core.datasets import (
    atomic_write,
    episodes_from_table,
    episodes_to_table,
    games_from_table,
    read_table,
    write_table,
)
from agentprm_core.exploration import play_exploring
from agentprm_core.policy.models import Checkpoint
from agentprm_core.policy.sampler import Sampler
from agentprm_core.rollout import Start, play, starts
from agentprm_core.types import EPISODES, GAMES, Episode, Game
from tasks.frame import layout
from tasks.frame.compute import load_player, slots, use
from tasks.frame.kept import digest, kept
from tasks.frame.stage import Stage, run_stage
from tasks.frame.suites import rollouts_suite

_PORTIONS = 8
"""A rollout is kept in so many portions (fewer where they would leave slots empty): a kill costs one."""
_REFILLS = 8
"""Branches of a portion to each slot, at least: towards the end of a portion slots are empty."""

Branched = tuple[Point, tuple[str, ...]]
"""A state and the actions to try there."""


def work(stage: Stage) -> None:
    """Let the policy play, G episodes a game."""
    use(stage.params.compute)
    section = stage.params.rollout
    source = layout.policy(stage.prev)
    stage.read(layout.games("train"), source)
    policy = load_player(source, stage.params.compute)
    games = share_of(games_from_table(read_table(layout.games("train"), GAMES)), section.games, stage)
    scratch = _scratch(stage, policy.digest)
    begun = list(_starts(stage, games))
    rollouts = pa.concat_tables(
        kept(scratch / f"{n:05}.parquet", EPISODES, partial(_portion, stage, policy, part))
        for n, part in _parts(stage, begun)
    )
    stage.gate(
        rollouts_suite(
            rollouts,
            policy=policy.digest,
            episodes_per_game=section.episodes_per_game,
            min_valid=section.min_valid,
        )
    )
    episodes = list(episodes_from_table(rollouts))
    branches = _branches(stage, policy, episodes, {game.id: game for game in games}, scratch)
    with atomic_write(layout.rollouts(stage.iteration)) as folder:
        folder.mkdir()
        write_table(rollouts, folder / layout.episodes(stage.iteration).name)
        write_table(branches, folder / layout.branches(stage.iteration).name)
    stage.report(_figures(episodes, branches, len(games), stage.params.env.max_turns))
    stage.wrote(layout.rollouts(stage.iteration))


def share_of(games: list[Game], count: int, stage: Stage, backwards: bool = False) -> list[Game]:
    """The ``count`` games of this iteration, sorted by id; all of them in every iteration where that is the count.

    ``backwards``: from the other end of the campaign's order, which the rollouts reach last."""
    order = random.Random(stage.params.seed).sample(games, len(games))
    if backwards:
        order.reverse()
    first = stage.prev * count
    return sorted((order[(first + i) % len(order)] for i in range(count)), key=lambda game: game.id)


def new_sampler(stage: Stage, policy: Checkpoint, temperature: float) -> Sampler:
    section = stage.params.rollout
    context = min(stage.params.model.context, policy.model.config.max_position_embeddings)
    return Sampler(
        policy,
        slots=slots(stage, policy, section.slots, context),
        context=context,
        temperature=temperature,
        constrained=section.constrained,
        max_action_tokens=stage.params.model.max_action_tokens,
    )


def _scratch(stage: Stage, player: str) -> Path:
    """Scratch space of exactly this play: other parameters or another policy have another."""
    params = stage.params
    decides = (
        params.seed, params.env, params.rollout, params.compute, params.model, params.label, params.games, player
    )  # fmt: skip
    return stage.scratch / digest(*decides)


def _starts(stage: Stage, games: list[Game]) -> Iterator[Start]:
    """G starts a game; ``reset_share`` of them in a state of the game's demonstration (Reset-50-50, paper A)."""
    section = stage.params.rollout
    resets = round(section.reset_share * section.episodes_per_game)
    demos = {}
    if resets:
        stage.read(layout.DEMOS)
        demos = {demo.game_id: demo for demo in episodes_from_table(read_table(layout.DEMOS, EPISODES))}
    for start in starts(games, section.episodes_per_game, stage.seed):
        if start.index < resets and start.game.id in demos:
            actions = [turn.action for turn in demos[start.game.id].turns]
            length = random.Random(start.seed).randrange(len(actions))
            start = replace(start, actions=tuple(actions[:length]))
        yield start


def _parts(stage: Stage, begun: list[Start]) -> Iterator[tuple[int, list[Start]]]:
    size = max(stage.params.rollout.slots, math.ceil(len(begun) / _PORTIONS))
    return enumerate(begun[at : at + size] for at in range(0, len(begun), size))


def _portion(stage: Stage, policy: Checkpoint, begun: list[Start]) -> pa.Table:
    played = played_by(stage, policy, begun)
    return episodes_to_table(played, iteration=stage.iteration, method="policy", policy=policy.digest)


def played_by(stage: Stage, policy: Checkpoint, begun: list[Start]) -> Iterator[Episode]:
    """The policy as it is; and where params.yaml asks for it, steered in the last episodes of every game, and drawn
    to what it rarely did."""
    section, env = stage.params.rollout, stage.params.env
    how = {"world_name": env.world, "max_turns": env.max_turns}
    first_steered = section.episodes_per_game - round(section.steered * section.episodes_per_game)
    for steered in (False, True):
        own = [start for start in begun if (start.index >= first_steered) == steered]
        if own:
            player = replace(policy, renderer=policy.renderer.steered()) if steered else policy
            sampler = new_sampler(stage, player, section.temperature)
            if section.exploration:
                yield from play_exploring(sampler, own, bonus=section.exploration, **how)
            else:
                yield from play(sampler, own, **how)


def _branches(
    stage: Stage, policy: Checkpoint, episodes: list[Episode], games: dict[str, Game], scratch: Path
) -> pa.Table:
    """Branching rollouts at states of training and of validation games, as many of each as params.yaml says."""
    section, env, label = stage.params.rollout.branch, stage.params.env, stage.params.label
    ids = sorted(games)
    held_out = dict(zip(ids, validation_games(ids, label.validation_share, stage.params.seed)))
    drawer = new_sampler(stage, policy, section.temperature)
    training, validation = ([e for e in episodes if held_out[e.game_id] == side] for side in (False, True))
    learnt = undecided(drawer, training, section.train_states, actions=section.actions, seed=stage.seed)
    measured = undecided(drawer, validation, section.validation_states, actions=section.actions, seed=stage.seed)
    branched = [point for point, _ in learnt]
    strays = random_commands(training, section.random_states, seed=stage.seed, without=branched)
    sampler = new_sampler(stage, policy, stage.params.rollout.temperature)
    tables = []
    for several, continuations in ((_in_order([*learnt, *measured]), section.continuations), (strays, 1)):
        for part in _slices(several, continuations, sampler.seats):
            played = partial(
                play_branches,
                sampler,
                games,
                [point for point, _ in part],
                [actions for _, actions in part],
                continuations=continuations,
                world_name=env.world,
                max_turns=env.max_turns,
                seed=stage.seed,
            )
            name = digest([(point.name, actions) for point, actions in part], continuations)
            tables.append(kept(scratch / f"branches-{name}.parquet", BRANCHES, played))
    order = [(name, "ascending") for name in ("game_id", "episode", "turn", "action", "continuation")]
    return pa.concat_tables(tables).sort_by(order).combine_chunks()  # the same bytes, however it was sliced


def _in_order(several: list[Branched]) -> list[Branched]:
    return sorted(several, key=lambda point_and_actions: point_and_actions[0].name)


def _slices(several: list[Branched], continuations: int, seats: int) -> Iterator[list[Branched]]:
    """Consecutive states, at least one slice and about as many in each."""
    plays = continuations * sum(len(actions) for _, actions in several)
    count = max(1, min(_PORTIONS, plays // (_REFILLS * seats), len(several)))
    for first, end in pairwise(len(several) * n // count for n in range(count + 1)):
        yield several[first:end]


def _figures(episodes: list[Episode], branches: pa.Table, games: int, max_turns: int) -> dict:
    turns = [turn for episode in episodes for turn in episode.turns[episode.start :]]
    states = {(row["game_id"], row["episode"], row["turn"]) for row in branches.to_pylist()}
    return {
        "games": games,
        "episodes": len(episodes),
        "turns": len(turns),
        "success": sum(episode.won for episode in episodes) / len(episodes),
        "mean_actions": sum(episode.length for episode in episodes) / len(episodes),
        "inadmissible": sum(not turn.valid for turn in turns) / len(turns),
        "truncated": sum(not e.won and e.length < max_turns for e in episodes) / len(episodes),
        "branch_states": len(states),
        "branch_plays": branches.num_rows,
    }


if __name__ == "__main__":
    run_stage("rollout", work, iterated=True, gated=True)
