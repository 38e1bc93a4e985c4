"""A world small enough to solve: a corridor of six cells, lost at one end and won at the other.

The agent stands in cells 1 … 4, starts in cell 2, goes left or right; cell 5 wins, cell 0 loses. The policy goes right
with a probability that depends on the cell, so its exact Q follows from four linear equations.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from agentprm_core.types import EPISODES, Episode, Game, Turn
from agentprm_core.worlds.base import Observation, WorldSpec

ACTIONS = ("left", "right")
START, END = 2, 5
RIGHT = {1: 0.7, 2: 0.5, 3: 0.6, 4: 0.8}
"""π(right | cell)."""

GAME = Game("corridor/0", "corridor", "train", "walk", "reach the end", "")


def exact_q(gamma: float, outcome: str = "binary") -> dict[tuple[int, str], float]:
    """Q^π(cell, action) = E[γ^{T−1−t} R], R ∈ {0,1} or {−1,1} mapped to [0,1], by linear algebra."""
    lost, won = (0.0, 1.0) if outcome == "binary" else (-1.0, 1.0)
    cells = list(RIGHT)
    matrix, right_side = np.eye(len(cells)), np.zeros(len(cells))  # V = P(γV) + ends
    for i, cell in enumerate(cells):
        for to, p in ((cell + 1, RIGHT[cell]), (cell - 1, 1 - RIGHT[cell])):
            if to in RIGHT:
                matrix[i, cells.index(to)] -= gamma * p
            else:
                right_side[i] += p * (won if to == END else lost)
    value = dict(zip(cells, np.linalg.solve(matrix, right_side)))
    value_after = {cell: gamma * v for cell, v in value.items()} | {0: lost, END: won}
    q = {(cell, a): value_after[cell + (1 if a == "right" else -1)] for cell in cells for a in ACTIONS}
    return q if outcome == "binary" else {sa: (v + 1) / 2 for sa, v in q.items()}


class Corridor:
    """The world's contract, for one game."""

    cell = START

    def reset(self, game: Game) -> Observation:
        self.cell = START
        return self._look()

    def step(self, command: str) -> Observation:
        self.cell += {"left": -1, "right": 1}[command]
        return self._look()

    def clone(self) -> Corridor:
        other = Corridor()
        other.cell = self.cell
        return other

    def state_key(self) -> str:
        return f"cell {self.cell}"

    @property
    def over(self) -> bool:
        return self.cell in (0, END)

    def _look(self) -> Observation:
        return Observation(f"you are in cell {self.cell}", ACTIONS, float(self.cell == END), self.over)


CORRIDOR = WorldSpec(
    "corridor", make=Corridor, generate=lambda count, seed, split: [GAME], kinds=("walk",), instruction="You walk."
)


def play(seed: int, index: int = 0, game_id: str = GAME.id) -> Episode:
    """One episode of π."""
    rng, world, turns = np.random.default_rng(seed), Corridor(), []
    observation = world.reset(GAME)
    while not world.over:
        action = ACTIONS[int(rng.random() < RIGHT[world.cell])]
        turns.append(Turn(observation.text, action, ACTIONS, True, world.state_key()))
        observation = world.step(action)
    return Episode(game_id, index, seed, tuple(turns), observation.reward == 1)


def play_on(histories, seeds) -> list[tuple[bool, int]]:
    """π from where each history ends: the ``PlayFrom`` of branching rollouts."""
    answers = []
    for history, seed in zip(histories, seeds):
        rng, steps, world = np.random.default_rng(seed), 0, Corridor()
        world.cell = int(history.observation.text.split()[-1])
        while not world.over:
            world.step(ACTIONS[int(rng.random() < RIGHT[world.cell])])
            steps += 1
        answers.append((world.cell == END, steps))
    return answers


def table(*episodes: tuple[str, int, list[str], bool]) -> pa.Table:
    """Rows of EPISODES from (game id, episode, actions, won): every state is the history of actions."""
    rows = []
    for game_id, episode, actions, won in episodes:
        for t, action in enumerate(actions):
            last = t == len(actions) - 1
            seen = " then ".join(actions[:t]) or "start"
            end = (float(won and last), won and last, last, f"{game_id} {seen}", "digest")
            rows.append((0, "agentprm", game_id, 0, episode, t, seen, action, "", [action], True, *end))
    columns = zip(*rows)
    return pa.table(dict(zip(EPISODES.names, map(list, columns))), schema=EPISODES)
