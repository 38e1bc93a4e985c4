"""Targets by playing on: from every visited turn, fresh rollouts (Math-Shepherd; the
"MC labels" rival of paper B), and the values of several actions at one state from :mod:`agentprm_core.branches`.

This file walks histories and averages outcomes. Who plays is the caller's, behind :class:`PlayFrom`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np
import polars as pl
import pyarrow as pa

from agentprm_core.credit.monte_carlo import discounted
from agentprm_core.credit.split import validation_games
from agentprm_core.errors import DataError
from agentprm_core.types import LABELS, Episode, Game, Turn
from agentprm_core.worlds.base import Observation, World

BRANCH_VALUES = pa.schema(
    [
        ("game_id", pa.string()),
        ("episode", pa.int32()),
        ("turn", pa.int32()),
        ("action", pa.string()),
        ("reason", pa.string()),
        ("q", pa.float32()),
        ("visits", pa.int32()),
        ("variance", pa.float32()),
        ("returns", pa.list_(pa.float32())),
    ]
)
"""One row an action tried at the state of a turn: the mean return in [0,1] of its plays, their number and variance, and
the return of each, in their order."""
BRANCHING_LABELS = LABELS.append(pa.field("played", pa.int32()))
"""LABELS with what each cost: the turns of its plays."""


@dataclass(frozen=True, slots=True)
class History:
    """Where a rollout starts: what was seen and done, and what the world says now."""

    game: Game
    turns: tuple[Turn, ...]
    observation: Observation


class PlayFrom(Protocol):
    """Plays on from histories to the episodes' ends with the policy whose Q is wanted."""

    def __call__(self, histories: Sequence[History], seeds: Sequence[int]) -> Sequence[tuple[float, int]]:
        """(reward, turns played) of each. A turn limit counts ``history.turns`` too, and a history that has reached it
        is (0, 0)."""
        ...


@dataclass(frozen=True)
class BranchPoint:
    """Where an episode stood right after one judged action."""

    name: str
    """Which turn of which episode; with the game it decides the rollouts' seeds."""
    history: History


@dataclass(frozen=True)
class BranchTargets:
    """Over P points, with R rollouts each (one visit where the judged action itself ended the episode)."""

    q_P: np.ndarray
    """float64 mean return in [0,1]."""
    variance_P: np.ndarray
    """float64 mean squared deviation over the rollouts."""
    visits_P: np.ndarray
    """int64, rollouts that count."""
    played_P: np.ndarray
    """int64, what it cost: policy decisions over the point's rollouts."""


def branching_targets(
    reward_PR: np.ndarray, lengths_PR: np.ndarray, *, gamma: float, outcome: str = "signed"
) -> tuple[np.ndarray, np.ndarray]:
    """(mean, variance) [P] of γ^length·R, mapped to [0,1], over R rollouts from each of P points.

    ``lengths_PR`` counts the turns after the judged action, so a length of 0 is an action that ended the episode.

    Raises:
        ValueError: ``gamma`` or ``outcome`` as in :func:`agentprm_core.credit.monte_carlo.discounted`.
    """
    return_PR = discounted(reward_PR, lengths_PR, gamma=gamma, outcome=outcome)
    return return_PR.mean(1), return_PR.var(1)


def branch_values(branches: pa.Table, *, gamma: float, outcome: str = "signed") -> pa.Table:
    """Rows of :data:`BRANCH_VALUES`, in the order of ``branches`` (rows of :data:`agentprm_core.branches.BRANCHES`).

    Raises:
        ValueError: ``gamma`` or ``outcome`` as in :func:`agentprm_core.credit.monte_carlo.discounted`.
    """
    reward, length = branches["reward"].to_numpy(), branches["length"].to_numpy()
    plays = cast(pl.DataFrame, pl.from_arrow(branches)).with_columns(
        g=discounted(reward, length, gamma=gamma, outcome=outcome)
    )
    values = plays.group_by("game_id", "episode", "turn", "action", "reason", maintain_order=True).agg(
        q=pl.col("g").mean(), visits=pl.len(), variance=pl.col("g").var(ddof=0), returns=pl.col("g")
    )
    return values.to_arrow().cast(BRANCH_VALUES)


def points_of_episode(world: World, game: Game, episode: Episode) -> Iterator[BranchPoint]:
    """The point after each turn of ``episode``, which is replayed in ``world``.

    Raises:
        DataError: the world says something else than the episode's observations: another game or engine.
    """
    observation = world.reset(game)
    for t, turn in enumerate(episode.turns):
        _same(observation, turn, episode, t)
        observation = world.step(turn.action)
        history = History(game, episode.turns[: t + 1], observation)
        yield BranchPoint(f"{episode.index}/{t}", history)


def branching_q(
    points: Sequence[BranchPoint], play_from: PlayFrom, *, rollouts: int, gamma: float, seed: int, outcome: str
) -> BranchTargets:
    """Q̂ of each point's action: the mean return of ``rollouts`` plays from it. All plays are one call.

    A rollout's seed follows from ``seed``, the point's game and name and the rollout's number, so a point gets the same
    rollouts whatever other points there are.

    Raises:
        ValueError: ``rollouts`` < 1; ``play_from`` answers for another number of histories.
    """
    if rollouts < 1:
        raise ValueError(f"critic.continuations: {rollouts} is not at least 1")
    open_P = np.array([not point.history.observation.done for point in points], bool)
    played = [point for point, is_open in zip(points, open_P) if is_open]
    answers = play_from(
        [point.history for point in played for _ in range(rollouts)],
        [_seed(seed, point, i) for point in played for i in range(rollouts)],
    )
    if len(answers) != len(played) * rollouts:
        raise ValueError(f"play_from: {len(answers)} outcomes for {len(played) * rollouts} histories")
    reward = np.repeat([[point.history.observation.reward] for point in points], rollouts, 1).astype(np.float64)
    lengths = np.zeros((len(points), rollouts), np.int64)
    if played:
        reward[open_P], lengths[open_P] = (np.reshape(column, (-1, rollouts)) for column in zip(*answers))
    q, variance = branching_targets(reward, lengths, gamma=gamma, outcome=outcome)
    return BranchTargets(q, variance, np.where(open_P, rollouts, 1), lengths.sum(1))


def label_branching(
    episodes: Sequence[Episode],
    games: Mapping[str, Game],
    make_world: Callable[[], World],
    play_from: PlayFrom,
    *,
    rollouts: int,
    gamma: float,
    validation_share: float,
    seed: int,
    outcome: str = "signed",
) -> pa.Table:
    """Rows of BRANCHING_LABELS for every turn of ``episodes`` (sorted by game and index), by branching rollouts.

    All branches are played in one call, so that a sampler can batch them. Give a dataset in portions whose episodes fit
    the memory, each with all ``games``; the rows do not depend on the portions.

    Raises:
        KeyError: an episode of a game that is not in ``games``.
        ValueError: as :func:`points_of_episode`, :func:`branching_q` and
            :func:`~agentprm_core.credit.split.validation_games`.
    """
    points, where = [], []
    for episode in episodes:
        points += points_of_episode(make_world(), games[episode.game_id], episode)
        where += [(episode.game_id, episode.index, t) for t in range(episode.length)]
    targets = branching_q(points, play_from, rollouts=rollouts, gamma=gamma, seed=seed, outcome=outcome)
    names = sorted(games)
    side = dict(zip(names, validation_games(names, validation_share, seed)))
    game_id, index, turn = zip(*where)
    split = ["validation" if side[game] else "train" for game in game_id]
    columns = (game_id, index, turn, targets.q_P, targets.visits_P, targets.variance_P, split, targets.played_P)
    return pa.table({field.name: pa.array(c).cast(field.type) for field, c in zip(BRANCHING_LABELS, columns)})


def _same(observation: Observation, turn: Turn, episode: Episode, t: int) -> None:
    if observation.text != turn.observation:
        raise DataError(
            f"branching: game {episode.game_id}, episode {episode.index}, turn {t}: the world says "
            f"{observation.text!r}, the episode {turn.observation!r}; is it another engine (env.world) or game?"
        )


def _seed(seed: int, point: BranchPoint, rollout: int) -> int:
    digest = hashlib.blake2b(f"{seed}:{point.history.game.id}:{point.name}:{rollout}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 2  # fits a signed 64-bit integer
