"""A world small enough to enumerate: three junctions one after the other, two ways at each, eight ends.

The agent goes left or right three times. Four of the eight ends win. A policy of one logit a junction has its success
and its gradient by enumeration, and every episode's score vector ∇ log π in closed form.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from agentprm_core.types import Episode, Game, Turn
from agentprm_core.worlds.base import Observation, WorldSpec

ACTIONS = ("left", "right")
DEPTH = 3
WINS = {"LLR", "LRR", "RLL", "RRR"}
"""The ends that win. No first step decides, and the last one decides most."""
PATHS = ["".join(steps) for steps in product("LR", repeat=DEPTH)]
STATES = ["", *("".join(steps) for depth in (1, 2) for steps in product("LR", repeat=depth))]
"""The seven junctions, by the way to them."""
THETA = np.array([0.3, -0.5, 0.8, 0.1, -0.7, 0.4, 0.2])
"""Logit of going right, a junction."""


def game(number: int = 0) -> Game:
    return Game(f"crossroads/{number:02}", "crossroads", "train", "walk", "reach the town", str(number))


def right(theta: np.ndarray = THETA) -> dict[str, float]:
    """π(right | junction)."""
    return dict(zip(STATES, 1 / (1 + np.exp(-theta))))


def chance(path: str, theta: np.ndarray = THETA, start: int = 0) -> float:
    """Of the episode, given its first ``start`` turns."""
    p = right(theta)
    return float(np.prod([p[path[:t]] if path[t] == "R" else 1 - p[path[:t]] for t in range(start, DEPTH)]))


def scores(path: str, theta: np.ndarray = THETA) -> np.ndarray:
    """[3, 7]: ∇ log π of each turn."""
    p, found = right(theta), np.zeros((DEPTH, len(STATES)))
    for t in range(DEPTH):
        found[t, STATES.index(path[:t])] = (path[t] == "R") - p[path[:t]]
    return found


def success(theta: np.ndarray = THETA) -> float:
    return sum(chance(path, theta) for path in WINS)


def gradient(theta: np.ndarray = THETA) -> np.ndarray:
    """[7] of the success."""
    return np.sum([chance(path, theta) * scores(path, theta).sum(0) for path in WINS], axis=0)


def value(path: str, theta: np.ndarray = THETA) -> float:
    """V at the junction that ``path`` leads to: the chance to win from there."""
    return sum(chance(end, theta, len(path)) for end in WINS if end.startswith(path))


def episode(path: str, index: int = 0, game_id: str = "g", start: int = 0) -> Episode:
    turns = tuple(
        Turn(seen(path[:t]), ACTIONS[path[t] == "R"], ACTIONS, True, f"{game_id}/{path[:t]}") for t in range(DEPTH)
    )
    return Episode(game_id, index, 0, turns, path in WINS, start=start)


def path_of(played: Episode) -> str:
    return "".join("R" if turn.action == "right" else "L" for turn in played.turns)


def seen(path: str) -> str:
    been = " ".join(ACTIONS[step == "R"] for step in path)
    return f"junction {len(path) + 1} after {been or 'nothing'}"


class Crossroads:
    """The world's contract."""

    def __init__(self) -> None:
        self.path, self.name = "", ""

    def reset(self, game: Game) -> Observation:
        self.path, self.name = "", game.id
        return self._look()

    def step(self, command: str) -> Observation:
        self.path += "R" if command == "right" else "L"
        return self._look()

    def clone(self) -> Crossroads:
        other = Crossroads()
        other.path, other.name = self.path, self.name
        return other

    def state_key(self) -> str:
        return f"{self.name}/{self.path}"

    def _look(self) -> Observation:
        done = len(self.path) == DEPTH
        return Observation(seen(self.path), () if done else ACTIONS, float(self.path in WINS), done)


CROSSROADS = WorldSpec(
    "crossroads",
    make=Crossroads,
    generate=lambda count, seed, split: [game(number) for number in range(count)],
    kinds=("walk",),
    instruction="You walk.",
)
