"""Branching rollouts: other actions at the states of episodes, and plays from each, to learn what each is worth.

What the PRM's ranking of actions is measured against (and trained on, where wanted): correlation over *states* says
nothing about which *action* is better at one. States are drawn from episodes, actions from the policy or from the
admissible commands, and the rest of each play is the policy's own.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from agentprm_core.policy.sampler import Sampler
from agentprm_core.rollout import Start, play
from agentprm_core.seeding import episode_seed
from agentprm_core.types import Episode, Game
from agentprm_core.worlds.base import listed_commands

BRANCHES = pa.schema(
    [
        ("game_id", pa.string()),
        ("episode", pa.int32()),
        ("turn", pa.int32()),
        ("action", pa.string()),
        ("reason", pa.string()),
        ("continuation", pa.int32()),
        ("reward", pa.float32()),
        ("length", pa.int32()),
    ]
)
"""One row a play, sorted by game, episode, turn, action, continuation
(:func:`agentprm_core.credit.branching.branch_values` sums them up): after ``action`` at the state of that turn the
policy played ``length`` more turns. ``reason``: what the policy wrote before the action; empty where it writes none,
and for a random command."""

Reply = tuple[str, str]
"""An action and the reason that was written before it."""
DRAWS = 4
"""Samples drawn at a state for each action wanted there."""
LOOKS = 6
"""States looked at, at most, for each one wanted."""


@dataclass(frozen=True, slots=True)
class Point:
    """A state to branch at: that of ``turn`` of ``episode``."""

    episode: Episode
    turn: int

    @property
    def name(self) -> tuple[str, int, int]:
        return (self.episode.game_id, self.episode.index, self.turn)


def branch_points(episodes: Sequence[Episode], seed: int) -> list[Point]:
    """Every world state of the episodes once, among the turns that a policy decided, in the order to draw them in."""
    points = [Point(episode, turn) for episode in episodes for turn in range(episode.start, episode.length)]
    random.Random(seed).shuffle(points)
    found: dict[str, Point] = {}
    for point in points:
        found.setdefault(point.episode.turns[point.turn].state_key, point)
    return list(found.values())


def undecided(
    sampler: Sampler, episodes: Sequence[Episode], count: int, *, actions: int, seed: int
) -> list[tuple[Point, tuple[Reply, ...]]]:
    """``count`` states where the policy would do one thing or another, with its up to ``actions`` likeliest things.

    A state where all ``DRAWS`` × ``actions`` samples agree teaches nothing about the order of actions and is passed
    over. Fewer than ``count`` where so many are not among the first ``LOOKS`` × ``count`` states drawn. In order of
    game, episode, turn.
    """
    points = branch_points(episodes, seed)[: LOOKS * count]
    found: list[tuple[Point, tuple[Reply, ...]]] = []
    for first in range(0, len(points), max(1, count)):
        chunk = points[first : first + count]
        tried = candidates(sampler, chunk, DRAWS * actions, seed)
        found += [(point, done[:actions]) for point, done in zip(chunk, tried) if len(done) > 1]
        if len(found) >= count:
            break
    return sorted(found[:count], key=lambda point_and_replies: point_and_replies[0].name)


def random_commands(
    episodes: Sequence[Episode], count: int, *, seed: int, without: Collection[Point] = ()
) -> list[tuple[Point, tuple[Reply, ...]]]:
    """``count`` states (fewer where there are not so many), each with one listed command that was not played there.

    A verb is drawn evenly, then one of its commands. What the policy never does, no rollout says the worth of; a PRM
    that knows the policy's own actions alone takes such a command for as good as those that look like it. In order of
    game, episode, turn.
    """
    passed = {point.name for point in without}
    found: list[tuple[Point, tuple[Reply, ...]]] = []
    for point in branch_points(episodes, seed):
        if len(found) == count:
            break
        turn = point.episode.turns[point.turn]
        others = sorted(set(listed_commands(turn.admissible)) - {turn.action})
        if others and point.name not in passed:
            draw = random.Random(episode_seed(seed, *point.name, "command"))
            verb = draw.choice(sorted({command.split()[0] for command in others}))
            command = draw.choice([c for c in others if c.split()[0] == verb])
            found.append((point, ((command, ""),)))
    return sorted(found, key=lambda point_and_replies: point_and_replies[0].name)


def candidates(sampler: Sampler, points: Sequence[Point], draws: int, seed: int) -> list[tuple[Reply, ...]]:
    """The distinct actions among ``draws`` samples at each point, each with the reason of its most frequent sample; the
    one in the most frequent sample first."""
    answers: dict[int, tuple[Reply, ...]] = {}
    waiting = iter(enumerate(points))
    asked: dict[int, int] = {}
    while len(answers) < len(points):
        while len(asked) < sampler.seats and (following := next(waiting, None)) is not None:
            number, point = following
            asked[_sit(sampler, point, draws, seed)] = number
        for seat, decisions in sampler.tick():
            reasons: dict[str, str] = {}
            for decision in decisions:
                reasons.setdefault(decision.action, decision.reason)
            answers[asked.pop(seat)] = tuple(reasons.items())
            sampler.close(seat)
    return [answers[number] for number in range(len(points))]


def play_branches(
    sampler: Sampler,
    games: Mapping[str, Game],
    points: Sequence[Point],
    replies: Sequence[Sequence[Reply]],
    *,
    continuations: int,
    world_name: str,
    max_turns: int,
    seed: int,
) -> pa.Table:
    """Rows of :data:`BRANCHES`: every reply at every point, ``continuations`` times. ``max_turns`` counts from the
    game's start, as in the episodes."""
    starts, names = [], []
    for point, tried in zip(points, replies, strict=True):
        for action, reason in sorted(tried):
            for continuation in range(continuations):
                names.append((*point.name, action, reason, continuation))
                own = episode_seed(seed, *point.name, action, continuation)
                starts.append(_start(point, games, (action, reason), len(starts), own))
    played = play(sampler, starts, world_name=world_name, max_turns=max_turns)
    ends = {episode.index: episode for episode in played}
    rows = [(*name, ends[i].reward, ends[i].length - name[2] - 1) for i, name in enumerate(names)]
    return pa.table({field.name: [row[i] for row in rows] for i, field in enumerate(BRANCHES)}, schema=BRANCHES)


def _sit(sampler: Sampler, point: Point, draws: int, seed: int) -> int:
    """A seat that has read the point's history and is asked for ``draws`` samples."""
    seat = sampler.open(episode_seed(seed, *point.name))
    for turn in point.episode.turns[: point.turn]:
        sampler.see(seat, turn.observation, turn.admissible)
        sampler.tell(seat, turn.action, turn.reason)
    now = point.episode.turns[point.turn]
    sampler.see(seat, now.observation, now.admissible)
    sampler.ask(seat, samples=draws)
    return seat


def _start(point: Point, games: Mapping[str, Game], reply: Reply, index: int, seed: int) -> Start:
    (action, reason), before = reply, point.episode.turns[: point.turn]
    return Start(
        games[point.episode.game_id],
        index,
        seed,
        actions=tuple(turn.action for turn in before),
        reasons=(*(turn.reason for turn in before), reason),
        first=action,
    )
