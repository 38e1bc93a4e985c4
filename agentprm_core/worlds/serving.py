"""A world of ours as an OpenEnv server, for trainers that play there. It needs ``openenv``, whose pins clash with this
project's: install it in an environment of its own (docs/your-own-world.md).

An action is ``{"command": TEXT}``. An observation has ``text``, ``admissible`` (the commands that mean something now)
and ``won``. The reward of a step is what it added to the episode's. Tasks are games: ``reset(split=…, index=…)``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentprm_core.types import Game
from agentprm_core.worlds.base import WorldSpec
from agentprm_core.worlds.guarded import Guarded


def served_game(games: Mapping[str, Sequence[Game]], split: str, seed: int, index: int | None) -> Game:
    """The game with this number, or without one the game of a seed. Raises IndexError, which ``openenv`` tells the
    client, for a split or a number that there is not."""
    found = games.get(split)
    if not found:
        raise IndexError(f"no split {split!r}: there are {', '.join(name for name in games if games[name])}")
    if index is None:
        return found[seed % len(found)]
    if not 0 <= index < len(found):
        raise IndexError(f"{split} has {len(found)} games, numbered from 0, not {index}")
    return found[index]


def openenv_app(
    spec: WorldSpec, games: Mapping[str, Sequence[Game]], *, name: str, max_turns: int, sessions: int
) -> Any:
    """The FastAPI application. ``games``: by split. ``name``: the world's, which clients are told with the game and
    the step where it breaks the contract. ``max_turns``: an episode ends there; 0 for never. ``sessions``: the most
    episodes at once. Raises ModuleNotFoundError without ``openenv``."""
    from openenv.core.env_server import create_app  # pyright: ignore[reportMissingImports]: an environment of its own
    from openenv.core.env_server.interfaces import Environment  # pyright: ignore[reportMissingImports]
    from openenv.core.env_server.types import Action, Observation, State  # pyright: ignore[reportMissingImports]

    class Command(Action):
        command: str

    class Seen(Observation):
        text: str
        admissible: list[str]
        won: bool = False

    class Served(Environment):
        SUPPORTS_CONCURRENT_SESSIONS = True

        def __init__(self) -> None:
            super().__init__()
            self._world, self._steps, self._earned = Guarded(name, spec.make()), 0, 0.0
            self._state = State()

        def reset(
            self, seed: int | None = None, episode_id: str | None = None, split: str = "train", index: int | None = None
        ) -> Seen:
            game = served_game(games, split, seed or 0, index)
            self._steps, self._earned, self._success = 0, 0.0, spec.of(game).success
            self._most = spec.turns(game, max_turns) if max_turns else 0
            self._state = State(episode_id=episode_id or game.id, step_count=0)
            return self._seen(self._world.reset(game))

        def step(self, action: Command) -> Seen:
            self._steps += 1
            self._state.step_count = self._steps
            return self._seen(self._world.step(action.command))

        def _seen(self, seen: Any) -> Seen:
            added, self._earned = seen.reward - self._earned, seen.reward
            done = seen.done or bool(self._most and self._steps >= self._most)
            won = seen.reward >= self._success
            return Seen(text=seen.text, admissible=list(seen.admissible), won=won, reward=added, done=done)

        @property
        def state(self) -> State:
            return self._state

        def list_splits(self) -> list[str]:
            return [split for split, found in games.items() if found]

        def num_tasks(self, split: str) -> int:
            return len(games.get(split, ()))

        def get_task(self, split: str, index: int) -> dict:
            game = served_game(games, split, 0, index)
            return {"id": game.id, "kind": game.kind, "goal": game.goal}

        def list_tasks(self, split: str) -> list[dict]:
            return [self.get_task(split, index) for index in range(self.num_tasks(split))]

    return create_app(Served, Command, Seen, env_name=spec.name, max_concurrent_envs=sessions)
