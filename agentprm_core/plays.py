"""Rollouts of a campaign: who starts where, and how the policy explores; and branches at some of their states.

Finished portions are kept in scratch: a killed run plays only what is missing, and ends in the same bytes.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import pyarrow as pa

from agentprm_core.branches import BRANCHES, Point, Reply, play_branches, random_commands, undecided
from agentprm_core.config import Count, CountOrNone, Positive, Range, Temperature
from agentprm_core.datasets import episodes_to_table, with_log_probs
from agentprm_core.errors import DataError
from agentprm_core.exploration import play_exploring
from agentprm_core.kept import digest
from agentprm_core.policy.models import Checkpoint
from agentprm_core.rollout import Start, play, starts
from agentprm_core.search.playing import PlaySettings
from agentprm_core.shards.base import HERE, Shards, kept_portions
from agentprm_core.types import EPISODES, SERVED, Episode, Game

_PORTIONS = 8
"""Rollouts are kept in so many portions, or in one for each player (fewer where they would leave slots empty): a kill
costs one."""
_REFILLS = 8
"""Branches of a portion to each slot, at least: towards the end of a portion slots are empty. Fewer where players would
have no portion: one that waits has all of its slots empty."""
LEFT_TO_DECIDE = 1 / 3
"""Of an episode's actions, the share that a reset leaves to the policy, at least."""
ACTIONS = 4
"""Actions tried at an undecided state, at most."""


@dataclass(frozen=True)
class Resets:
    """Part of the episodes start in a state of the game's demonstration (Reset-50-50, paper A). What is replayed is no
    decision: no label counts it, and a third of an episode's actions at least is left to the policy."""

    resets: Annotated[float, Range(gt=0, le=1)]
    """Share of a game's episodes; a whole number of them."""


@dataclass(frozen=True)
class Bonus:
    """Actions rarely tried are preferred: π(a|s) (1 + visits)^−c (:mod:`agentprm_core.exploration`)."""

    bonus: Positive
    """c."""


@dataclass(frozen=True)
class Steered:
    """Part of the episodes are played under a prompt that asks to explore (paper A), by policies that read
    instructions."""

    steered: Annotated[float, Range(gt=0, le=1)]
    """Share of a game's episodes; a whole number of them."""


Explore = Resets | Bonus | Steered | None


@dataclass(frozen=True)
class Branch:
    """Rollouts from each of several actions at one state: what the PRM's ranking is measured on."""

    train_states: CountOrNone
    """Undecided states of training games: their values teach the PRM."""
    random_states: CountOrNone
    """States of training games where a random command is tried once: what the policy never does."""
    validation_states: CountOrNone
    """Undecided states of validation games, and as many of guard games: the ranking is measured on them."""
    continuations: Count
    """Plays from each action at an undecided state."""
    temperature: Temperature
    """Of the first actions; those after it are the rollouts' own."""


@dataclass(frozen=True)
class Plays:
    """How the rollouts of one iteration are played."""

    episodes_per_game: int
    temperature: float
    explore: Explore
    branch: Branch
    settings: PlaySettings
    seed: int

    def share(self, share: float, name: str) -> int:
        """Episodes a game. Raises DataError where that is no whole number."""
        count = round(share * self.episodes_per_game)
        if abs(share * self.episodes_per_game - count) > 1e-9:
            raise DataError(
                f"rollout.explore.{name}: {share} is not allowed: a share of rollout.episodes_per_game, "
                f"{self.episodes_per_game}, that is a whole number"
            )
        return count


def rollouts(
    plays: Plays,
    policy: Checkpoint,
    games: Sequence[Game],
    demos: Mapping[str, Episode],
    *,
    iteration: int,
    scratch: Path,
    shards: Shards = HERE,
) -> pa.Table:
    """Rows of EPISODES, where servers play of SERVED. ``demos``: by game, for resets; ``scratch``: of exactly this
    play, whatever decides it."""
    begun = list(_starts(plays, games, demos))
    share = math.ceil(len(begun) / shards.players)
    size = max(1, min(plays.settings.slots, share), math.ceil(len(begun) / max(_PORTIONS, shards.players)))
    if isinstance(plays.explore, Bonus):  # whole games: an episode follows from its game's earlier ones
        size = math.ceil(size / plays.episodes_per_game) * plays.episodes_per_game
    portions = [(begun[at : at + size],) for at in range(0, len(begun), size)]
    paths = [scratch / f"{size}-{number:05}.parquet" for number in range(len(portions))]
    schema = EPISODES if plays.settings.servers is None else SERVED
    return pa.concat_tables(kept_portions(shards, paths, schema, _player, (plays, policy, iteration), portions))


def branches(
    plays: Plays,
    policy: Checkpoint,
    training: Sequence[Episode],
    validation: Sequence[Episode],
    games: Mapping[str, Game],
    *,
    scratch: Path,
    shards: Shards = HERE,
) -> pa.Table:
    """Rows of BRANCHES at states of ``training`` episodes, which teach the PRM, and of ``validation`` ones, which
    measure it."""
    section, settings = plays.branch, plays.settings
    drawer = settings.sampler(policy, section.temperature)
    learnt = undecided(drawer, training, section.train_states, actions=ACTIONS, seed=plays.seed)
    measured = undecided(drawer, validation, section.validation_states, actions=ACTIONS, seed=plays.seed)
    branched = [point for point, _ in learnt]
    strays = random_commands(training, section.random_states, seed=plays.seed, without=branched)
    portions, paths = [], []
    for several, continuations in ((_in_order([*learnt, *measured]), section.continuations), (strays, 1)):
        for part in _slices(several, continuations, drawer.seats, shards.players):
            portions.append(([point for point, _ in part], [tried for _, tried in part], continuations))
            name = digest([(point.name, tried) for point, tried in part], continuations)
            paths.append(scratch / f"branches-{name}.parquet")
    tables = kept_portions(shards, paths, BRANCHES, _brancher, (plays, policy, games), portions)
    order = [(name, "ascending") for name in ("game_id", "episode", "turn", "action", "continuation")]
    return pa.concat_tables(tables).sort_by(order).combine_chunks()  # the same bytes, however it was sliced


def play_figures(episodes: Sequence[Episode], tried: pa.Table, most_turns: Mapping[str, int]) -> dict:
    """What the rollouts came to. ``most_turns``: {game: actions that an episode of it may have}."""
    turns = [turn for episode in episodes for turn in episode.turns[episode.start :]]
    branched = tried.to_pylist()
    states = {(row["game_id"], row["episode"], row["turn"]) for row in branched}
    return {
        "games": len({episode.game_id for episode in episodes}),
        "episodes": len(episodes),
        "turns": len(turns),
        "success": sum(episode.won for episode in episodes) / len(episodes),
        "mean_reward": sum(episode.reward for episode in episodes) / len(episodes),
        "mean_actions": sum(episode.length for episode in episodes) / len(episodes),
        "inadmissible": sum(not turn.valid for turn in turns) / len(turns),
        "unchanged": unchanged(episodes),
        "truncated": sum(not e.won and e.length < most_turns[e.game_id] for e in episodes) / len(episodes),
        "branch_states": len(states),
        "branch_plays": tried.num_rows,
        "episodes_played": len(episodes) + len(branched),
        "turns_played": len(turns) + sum(row["length"] + 1 for row in branched),
    }


def unchanged(episodes: Sequence[Episode]) -> float:
    """The share of commands that left the world as it was: refused ones, and those that only look. An episode's last
    command is left out, since no state after it is kept. 0 where no episode has two turns."""
    pairs = [pair for episode in episodes for pair in pairwise(episode.turns[episode.start :])]
    return sum(here.state_key == after.state_key for here, after in pairs) / max(len(pairs), 1)


def _starts(plays: Plays, games: Sequence[Game], demos: Mapping[str, Episode]) -> Iterator[Start]:
    """G starts a game, some of them in a state of the game's demonstration."""
    explore = plays.explore
    resets = plays.share(explore.resets, "resets") if isinstance(explore, Resets) else 0
    for start in starts(games, plays.episodes_per_game, plays.seed):
        if start.index < resets and start.game.id in demos:
            actions, most = [turn.action for turn in demos[start.game.id].turns], plays.settings.turns(start.game)
            length = random.Random(start.seed).randrange(1 + most_replayed(len(actions), most))
            start = replace(start, actions=tuple(actions[:length]))
        yield start


def most_replayed(actions: int, max_turns: int) -> int:
    """How many of a demonstration's ``actions`` a reset may replay: all but the last, and no more than leaves
    :data:`LEFT_TO_DECIDE` of the episode's ``max_turns`` to the policy. Else the end of a demonstration that is longer
    than an episode would leave nothing to decide."""
    return min(actions - 1, max_turns - math.ceil(LEFT_TO_DECIDE * max_turns))


def _player(plays: Plays, policy: Checkpoint, iteration: int) -> Callable[[list[Start]], pa.Table]:
    """Plays a portion of rollouts."""
    return partial(_portion, plays, policy, iteration)


def _portion(plays: Plays, policy: Checkpoint, iteration: int, begun: list[Start]) -> pa.Table:
    played = list(played_by(plays, policy, begun))
    table = episodes_to_table(played, iteration=iteration, method="policy", policy=policy.digest)
    return table if plays.settings.servers is None else with_log_probs(table, played)


def _brancher(plays: Plays, policy: Checkpoint, games: Mapping[str, Game]) -> Callable[..., pa.Table]:
    """Plays a portion of branches."""
    sampler, how = plays.settings.sampler(policy, plays.temperature), {"seed": plays.seed, **plays.settings.worlds}

    def branched(points: list[Point], replies: list[tuple[Reply, ...]], continuations: int) -> pa.Table:
        return play_branches(sampler, games, points, replies, continuations=continuations, **how)

    return branched


def played_by(plays: Plays, policy: Checkpoint, begun: list[Start]) -> Iterator[Episode]:
    """The policy as it is, steered in the last episodes of every game, or drawn to what it rarely did."""
    settings, explore = plays.settings, plays.explore
    steered = plays.share(explore.steered, "steered") if isinstance(explore, Steered) else 0
    for is_steered in (False, True):
        own = [start for start in begun if (start.index >= plays.episodes_per_game - steered) == is_steered]
        if not own:
            continue
        player = replace(policy, renderer=policy.renderer.steered()) if is_steered else policy
        if isinstance(explore, Bonus):
            sampler = settings.sampler(player, plays.temperature)
            yield from play_exploring(sampler, own, bonus=explore.bonus, **settings.worlds)
        else:
            with settings.playing(player, plays.temperature) as seated:
                yield from play(seated, own, **settings.worlds)


def _in_order(several: list[tuple[Point, tuple[Reply, ...]]]) -> list[tuple[Point, tuple[Reply, ...]]]:
    return sorted(several, key=lambda point_and_replies: point_and_replies[0].name)


def _slices(
    several: list[tuple[Point, tuple[Reply, ...]]], continuations: int, seats: int, players: int = 1
) -> Iterator[list[tuple[Point, tuple[Reply, ...]]]]:
    """Consecutive states, at least one slice and about as many in each."""
    plays = continuations * sum(len(actions) for _, actions in several)
    count = max(plays // (_REFILLS * seats), min(players, plays // seats))
    count = max(1, min(count, max(_PORTIONS, players), len(several)))
    for first, end in pairwise(len(several) * n // count for n in range(count + 1)):
        yield several[first:end]
