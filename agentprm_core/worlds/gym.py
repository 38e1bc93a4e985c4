"""Any text environment of gymnasium as a world: ``SPEC = gym_world("lake", {"small": "FrozenLake-v1"}, …)``.

Commands are the texts of a ``Text`` action space, or names given to the numbers of a ``Discrete`` one. A game is a
level and a seed. An environment cannot be copied, so clones replay (:mod:`agentprm_core.worlds.replay`), and it must
be deterministic once ``reset(seed=…)`` has seeded it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentprm_core.errors import DataError
from agentprm_core.types import Game
from agentprm_core.worlds.base import Observation, UnsupportedGame, WorldSpec, admits
from agentprm_core.worlds.replay import Replayed

Read = Callable[[Any, Mapping[str, Any]], Any]
"""(observation, info) → what is wanted of them."""

_SPLITS = {"train": range(2, 10), "seen": (0,), "unseen": (1,)}
"""Split → the last digits of its seeds."""
_ROUNDING = 1e-6
"""Of the range of rewards: what a sum of steps may lie outside of it."""


def text_itself(observation: Any, info: Mapping[str, Any]) -> str:
    """The observation, which must be a string. Raises DataError where it is not."""
    if not isinstance(observation, str):
        kind = type(observation).__name__
        raise DataError(f"gym_world: an observation is a {kind}, not a string; say how to read it (text=entry(KEY))")
    return str(observation)


def entry(key: str) -> Read:
    """Reads ``key`` of the observation where that is a mapping that has it, else of the info. Raises DataError where
    neither has it."""

    def read(observation: Any, info: Mapping[str, Any]) -> Any:
        inside = observation if isinstance(observation, Mapping) else {}
        for place in (inside, info):
            if key in place:
                return place[key]
        there = ", ".join([*inside, *info]) or "nothing"
        raise DataError(f"gym_world: {key!r} is in neither the observation nor the info, which have {there}")

    return read


@dataclass(frozen=True)
class Reading:
    """How an environment is read and acted in."""

    make: Callable[[str], Any]
    """Environment's id → the environment."""
    text: Read
    names: tuple[str, ...]
    """Of a ``Discrete`` space: the command of each action. Empty for a ``Text`` space."""
    admissible: Read | None
    """Reads the commands that mean something now, as texts, or as a mask over ``names``. None: all of ``names``, or any
    text."""
    low: float
    high: float
    """The sums of an episode's rewards that count as 0 and as 1: all others lie between."""


def share_of_range(total: float, low: float, high: float) -> float:
    """What an episode's rewards have come to, as a share of what they may come to. Raises ValueError where that is not
    in [0, 1], but for rounding."""
    share = (total - low) / (high - low)
    if not -_ROUNDING <= share <= 1 + _ROUNDING:
        raise ValueError(f"has paid {total:.6g} in this episode, not {low:g} to {high:g}: say rewards=(LOW, HIGH)")
    return min(max(share, 0.0), 1.0)


class GymEngine:
    """One environment behind reset and step (:class:`agentprm_core.worlds.replay.Engine`). A payload is
    ``ID SEED``."""

    def __init__(self, reading: Reading) -> None:
        self._how = reading
        self._id: str | None = None

    def reset(self, game: Game) -> Observation:
        name, _, seed = game.payload.rpartition(" ")
        if not name or not seed.isdigit():
            raise UnsupportedGame(f"{game.id}: the payload {game.payload!r} is not an environment's id and a seed")
        if name != self._id:
            self._env, self._id = self._how.make(name), name
            actions, named = getattr(self._env.action_space, "n", None), len(self._how.names)
            if actions not in (None, named):
                said = f"{named or 'no'} names for the {actions} actions of {name}"
                raise DataError(f"gym_world: {said}: give a name to each (actions=…)")
        self._total = 0.0
        found, info = self._env.reset(seed=int(seed))
        text = self._how.text(found, info)
        self._last = self._observation(f"{text}\n\nYour task is to: {game.goal}", found, info, False)
        return self._last

    def step(self, command: str) -> Observation:
        if not admits(self._last.admissible, command):
            return self._last._replace(text="Nothing happens.")
        action = command
        if self._how.names:
            action = int(getattr(self._env.action_space, "start", 0)) + self._how.names.index(command)
        found, reward, terminated, truncated, info = self._env.step(action)
        self._total += float(reward)
        if not math.isfinite(self._total):
            raise DataError(f"gym_world: the environment says that the reward is {reward}: it must be a number")
        done = bool(terminated or truncated)
        self._last = self._observation(self._how.text(found, info), found, info, done)
        return self._last

    def _observation(self, text: str, found: Any, info: Mapping[str, Any], done: bool) -> Observation:
        how = self._how
        try:
            reward = share_of_range(self._total, how.low, how.high)
        except ValueError as error:
            raise DataError(f"the environment {error} in gym_world, the least and the most that it pays") from error
        return Observation(text, self._admissible(found, info), reward, done)

    def _admissible(self, found: Any, info: Mapping[str, Any]) -> tuple[str, ...]:
        names = self._how.names
        if self._how.admissible is None:
            return tuple(sorted(names))
        said = list(self._how.admissible(found, info))
        if not all(isinstance(command, str) for command in said):
            if len(said) != len(names):
                raise DataError(f"gym_world: a mask of {len(said)} for {len(names)} actions: give a name to each")
            said = [name for name, allowed in zip(names, said) if allowed]
        return tuple(sorted({str(command) for command in said}))


def make_by_id(name: str) -> Any:
    """An environment that is registered with gymnasium. Raises DataError where gymnasium is not installed."""
    try:
        import gymnasium
    except ModuleNotFoundError:
        raise DataError(f"gym_world: {name} needs gymnasium: pip install gymnasium==1.4.0") from None
    try:
        return gymnasium.make(name)
    except gymnasium.error.Error as error:
        raise DataError(f"gym_world: {name!r} cannot be made: {error}") from None


def gym_world(
    name: str,
    levels: Mapping[str, str],
    *,
    goal: str,
    make: Callable[[str], Any] = make_by_id,
    text: Read = text_itself,
    actions: Sequence[str] = (),
    admissible: Read | None = None,
    rewards: tuple[float, float] = (0.0, 1.0),
    success: float = 1.0,
    max_turns: int = 30,
) -> WorldSpec:
    """The spec of an environment, or of several of a kind.

    ``levels``: kind → environment's id. ``goal``: the task sentence, two words or more. ``actions``: a name for each
    action of a ``Discrete`` space. ``rewards``: the least and the most that an episode's rewards add up to, at any of
    its steps; they become 0 and 1, and ``success`` is compared with what they become. Splits have seeds of their own.

    Raises ValueError for an empty range of rewards.
    """
    low, high = rewards
    if not low < high:
        raise ValueError(f"gym_world: rewards from {low} to {high} is no range")
    reading = Reading(make, text, tuple(actions), admissible, low, high)

    def generate(count: int, seed: int, split: str) -> list[Game]:
        if split not in _SPLITS:
            raise DataError(f"games: {split!r} is not a split of {name}: {', '.join(_SPLITS)}")
        rng, games = random.Random(f"{split}/{seed}"), {}
        while len(games) < count:
            kind = rng.choice(sorted(levels))
            drawn = 10 * rng.randrange(10**8) + rng.choice(_SPLITS[split])
            games[f"{split}/{kind}-{drawn}"] = Game(
                id=f"{split}/{kind}-{drawn}",
                world=name,
                split=split,
                kind=kind,
                goal=goal,
                payload=f"{levels[kind]} {drawn}",
            )
        return [games[key] for key in sorted(games)]

    return WorldSpec(
        name=name,
        make=lambda: Replayed(lambda: GymEngine(reading)),
        generate=generate,
        kinds=tuple(levels),
        instruction=f"Your task is to: {goal}",
        success=success,
        max_turns=max_turns,
    )
