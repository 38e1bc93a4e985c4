"""ALFWorld with a memory beside the agent: places that it has looked into for nothing are not offered again.

A small policy goes back to places that it has been to (``experiments/01-climb``). Here ``go to X`` is no command while
the agent has nothing in its hands and has already looked into X with empty hands, unless it took something from X then.
Once every place has been looked into, all are offered again. The memory holds nothing but what the texts have told, so
whoever plays the published game can keep it too.

The agent chooses among other commands than in the published game, so figures of this world stand beside those of
``alfworld`` and not in their place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Self

from agentprm_core.types import Game
from agentprm_core.worlds.alfworld import actions
from agentprm_core.worlds.alfworld.compiled import CompiledGame
from agentprm_core.worlds.alfworld.engine import NOTHING_HAPPENS, FastWorld
from agentprm_core.worlds.alfworld.state import State
from agentprm_core.worlds.base import Observation

_LOOKS = frozenset((actions.go, actions.open_receptacle, actions.examine_receptacle))
_NONE: frozenset[str] = frozenset()


class RememberingWorld(FastWorld):
    """One episode in one game. ``reset`` before anything else."""

    __slots__ = ("_known", "_withheld")
    _known: int
    """Bit mask of the receptacles that were looked into with empty hands, and nothing taken from."""
    _withheld: frozenset[str]
    """Commands of the published game that are not offered now."""

    def reset(self, game: Game | CompiledGame) -> Observation:
        """Start ``game`` anew; raises as :meth:`agentprm_core.worlds.alfworld.engine.FastWorld.reset`."""
        self._known, self._withheld = 0, _NONE
        return super().reset(game)

    def step(self, command: str) -> Observation:
        """Do ``command``; one that is not offered changes nothing and the text says so (``Nothing happens.``)."""
        command = command.strip()
        action = self._action(command)
        if action is None or command in self._withheld:
            won = self._won
            return Observation(NOTHING_HAPPENS, self._offered(self._admissible), float(won), won)
        seen = super().step(command)
        self._remember(*action)
        return seen._replace(admissible=self._offered(seen.admissible))

    def clone(self) -> Self:
        """An independent copy in the same state, with the same memory."""
        twin = super().clone()
        twin._known, twin._withheld = self._known, self._withheld
        return twin

    def state_key(self) -> str:
        """32 hex digits of the household's state and of the memory, which decides what is offered."""
        key = f"{super().state_key()} {self._known:x}"
        return hashlib.blake2b(key.encode(), digest_size=16).hexdigest()

    def _remember(self, act: Callable[[State, int, int], str], first: int, second: int) -> None:
        """Take note of an action that was done, and of what is to be withheld after it."""
        game = self.game
        if act is actions.take:
            self._known &= ~(1 << second)
        elif act in _LOOKS and self.held is None:
            closed = game.openable >> first & 1 and not self.opened >> first & 1
            if not closed:
                self._known |= 1 << first
        if self.held is not None or not self._known:
            self._withheld = _NONE
            return
        known = frozenset([f"go to {name}" for r, name in enumerate(game.receptacles) if self._known >> r & 1])
        places = (command for command in self._admissible if command.startswith("go to "))
        self._withheld = _NONE if known.issuperset(places) else known

    def _offered(self, admissible: tuple[str, ...]) -> tuple[str, ...]:
        if not self._withheld:
            return admissible
        return tuple([command for command in admissible if command not in self._withheld])


class PutsRememberingWorld(RememberingWorld):
    """Besides, a place that something was put into is not offered again to empty hands, unless something was taken
    from it since. A small policy takes out what it has put where it belongs."""

    __slots__ = ()

    def _remember(self, act: Callable[[State, int, int], str], first: int, second: int) -> None:
        if act is actions.move:
            self._known |= 1 << second
        super()._remember(act, first, second)
