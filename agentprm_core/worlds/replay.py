"""Makes a world of an engine that can neither be copied nor hashed: a copy replays the actions in a fresh engine.

The engine must be deterministic, and each replay checks that it is. A clone costs as many steps as the episode has.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Protocol, Self

from agentprm_core.errors import DataError
from agentprm_core.types import Game
from agentprm_core.worlds.base import Observation


class Engine(Protocol):
    """What there is to start from: a :class:`agentprm_core.worlds.base.World` without ``clone`` and ``state_key``."""

    def reset(self, game: Game) -> Observation: ...

    def step(self, command: str) -> Observation: ...


class NotDeterministic(DataError):
    """A replay that went another way. Says which game, at which step, and both texts."""


class Replayed:
    """The world's contract over an engine: ``WorldSpec(make=lambda: Replayed(MyEngine), …)``."""

    def __init__(self, make: Callable[[], Engine]) -> None:
        """``make``: a fresh engine, to be reset."""
        self._make = make
        self._engine = make()
        self._game: Game | None = None
        self._actions: list[str] = []
        self._seen: list[Observation] = []

    def reset(self, game: Game) -> Observation:
        first = self._engine.reset(game)
        self._game, self._actions, self._seen = game, [], [first]
        return first

    def step(self, command: str) -> Observation:
        seen = self._engine.step(command)
        self._actions.append(command)
        self._seen.append(seen)
        return seen

    def clone(self) -> Self:
        """A fresh engine that has done the same. Raises :class:`NotDeterministic` where it did not answer the same."""
        other = type(self)(self._make)
        if self._game is None:
            return other
        self._compare(self._game, 0, other.reset(self._game))
        for step, action in enumerate(self._actions, start=1):
            self._compare(self._game, step, other.step(action))
        return other

    def state_key(self) -> str:
        """Digest of the game and the actions: states that are equal and were reached differently have two keys."""
        assert self._game is not None, "reset before anything else"
        digest = hashlib.blake2b(f"{self._game.id}\n{self._game.payload}".encode(), digest_size=16)
        for action in self._actions:
            digest.update(len(action).to_bytes(4, "little") + action.encode())  # with its length: no two lists alike
        return digest.hexdigest()

    def _compare(self, game: Game, step: int, again: Observation) -> None:
        before = self._seen[step]
        if again == before:
            return
        name = next(name for name in Observation._fields if getattr(again, name) != getattr(before, name))
        first, then = (
            f"{of.text!r}" + f" with {name} {getattr(of, name)!r}" * (name != "text") for of in (before, again)
        )
        after = f"step {step} ({self._actions[step - 1]!r})" if step else "reset"
        raise NotDeterministic(
            f"{game.id}: a replay differs at {after}: first {first}, then {then}; the engine must be "
            "deterministic: seed it by the game in reset"
        )
