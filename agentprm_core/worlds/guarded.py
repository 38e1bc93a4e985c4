"""A world in play: one that breaks the contract ends the play with one line that says what, where, and what to do."""

from __future__ import annotations

from typing import Self

from agentprm_core.errors import EXPECTED, DataError, ServerError
from agentprm_core.types import Game
from agentprm_core.worlds import world_spec
from agentprm_core.worlds.base import Observation, World, is_reward, observation_fault
from agentprm_core.worlds.raised import said_of


class Guarded:
    """The world of a spec (:class:`agentprm_core.worlds.base.World`), asked with care.

    What it raises is a :class:`DataError` with the world's name, the game and the step. So are an answer that is no
    :class:`Observation` of texts, a key that is no text and a reward that is not in [0, 1]. Expected errors pass as
    they are, but for those of a server, which get the same.
    """

    __slots__ = ("_command", "_game_id", "_name", "_steps", "_world")

    def __init__(self, name: str, world: World | None = None) -> None:
        """``name``: the world's, as ``agentprm check-world`` takes it. ``world``: None for a fresh one."""
        self._name, self._game_id, self._steps, self._command = name, "", 0, ""
        self._world = world_spec(name).make() if world is None else world

    def reset(self, game: Game) -> Observation:
        self._game_id, self._steps = game.id, 0
        try:
            seen = self._world.reset(game)
        except ServerError as error:  # a served world's, which says the address alone
            raise self._fault(str(error)) from error
        except EXPECTED:
            raise
        except (Exception, SystemExit) as error:  # a stranger's world may raise anything
            raise self._raised(error) from error
        return self._sound(seen)

    def step(self, command: str) -> Observation:
        self._steps += 1
        self._command = command
        try:
            seen = self._world.step(command)
        except ServerError as error:  # a served world's, which says the address alone
            raise self._fault(str(error)) from error
        except EXPECTED:
            raise
        except (Exception, SystemExit) as error:
            raise self._raised(error) from error
        return self._sound(seen)

    def begin(self, command: str) -> None:
        """Send a command whose answer the next step reads (``WorldSpec.remote``)."""
        self._world.begin(command)  # pyright: ignore[reportAttributeAccessIssue]

    def clone(self) -> Self:
        try:
            other = type(self)(self._name, self._world.clone())
        except EXPECTED:
            raise
        except (Exception, SystemExit) as error:
            raise self._raised(error, "clone ") from error
        other._game_id, other._steps, other._command = self._game_id, self._steps, self._command
        return other

    def state_key(self) -> str:
        try:
            key = self._world.state_key()
        except EXPECTED:
            raise
        except (Exception, SystemExit) as error:
            raise self._raised(error, "state_key ") from error
        if not isinstance(key, str):
            raise self._fault(f"state_key is {key!r:.80}, not a string")
        return key

    def require_clones(self, key: str) -> None:
        """Raises DataError where its ``state_key`` or that of a clone is not ``key``, which it was before a clone of it
        was made and stepped."""
        self._require(key, "a clone, or a step in it, changes its world")
        self.clone()._require(key, "a clone is in another state than its world")

    def _require(self, key: str, why: str) -> None:
        if self.state_key() != key:
            raise self._fault(f"{why}: state_key was {key!r:.80} and is {self.state_key()!r:.80}")

    def _raised(self, error: BaseException, what: str = "") -> DataError:
        return self._fault(f"{what}raised {said_of(error)}")

    def _sound(self, seen: Observation) -> Observation:
        """Raises DataError where it is none that a play can go on with."""
        if fault := observation_fault(seen):
            raise self._fault(fault)
        if not is_reward(seen.reward):
            raise self._fault(f"the reward {seen.reward!r} is not in [0, 1]")
        return seen

    def _fault(self, what: str) -> DataError:
        where = f"step {self._steps} ({self._command!r})" if self._steps else "reset"
        return DataError(f"{self._name}, {self._game_id}, {where}: {what}; run agentprm check-world {self._name}")
