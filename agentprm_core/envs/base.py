"""The contract between worlds and everything else: reset, step, clone, hash.

A world is a deterministic text game. It keeps one current state; ``reset`` and ``step`` change it and return an
:class:`Observation`. Turn limits belong to the caller (:mod:`agentprm_core.rollout`), never to the world.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, Self

from agentprm_core.errors import DataError
from agentprm_core.types import Game


class UnsupportedGame(DataError):
    """A game that cannot be played here: truncated, in another dialect, outside the domain. Says which and why."""


class Observation(NamedTuple):
    """What the world says after ``reset`` or ``step``."""

    text: str
    """The observation as the policy reads it. After ``reset``: the room, a blank line, the task sentence."""
    admissible: tuple[str, ...]
    """The commands that mean something in this state, sorted, each once."""
    won: bool
    """Whether the goal holds. A won world is over: stepping it further is the caller's mistake."""


class World(Protocol):
    """One episode in one game. Cheap to make, to clone and to hash where the engine allows it."""

    def reset(self, game: Game) -> Observation:
        """Start ``game`` anew. Raises :class:`UnsupportedGame` naming the game and the reason."""

    def step(self, command: str) -> Observation:
        """Do ``command``; one that is not admissible changes nothing and the text says so (``Nothing happens.``)."""

    def clone(self) -> Self:
        """An independent copy in the same state (by replay where the engine cannot copy)."""

    def state_key(self) -> str:
        """Digest of the state: equal exactly when two states of one game are, stable across processes.

        The digest covers the game too, so keys of two games never meet.
        """
