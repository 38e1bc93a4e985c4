"""The fast ALFWorld engine: says exactly what the published one says, in microseconds.

The world's state is a handful of immutable values (a location, what is held, contents by receptacle, bit masks of
properties), so that a clone copies references. Each admissible command is kept with the action it stands for.
:mod:`benchmarks.engine_parity` plays it side by side with TextWorld.
"""

from __future__ import annotations

import hashlib
import marshal
from collections.abc import Callable
from operator import attrgetter
from typing import Self

from agentprm_core.types import Game
from agentprm_core.worlds.alfworld.actions import CHANGES, REARRANGING
from agentprm_core.worlds.alfworld.commands import commands_everywhere, commands_now
from agentprm_core.worlds.alfworld.compile import compiled_game
from agentprm_core.worlds.alfworld.compiled import CompiledGame
from agentprm_core.worlds.alfworld.goal import satisfied
from agentprm_core.worlds.alfworld.state import State
from agentprm_core.worlds.base import Observation

NOTHING_HAPPENS = "Nothing happens."


class FastWorld(State):
    """One episode in one game. ``reset`` before anything else."""

    __slots__ = ("_admissible", "_deciding", "_everywhere", "_hashed", "_here", "_won")

    def reset(self, game: Game | CompiledGame) -> Observation:
        """Start ``game`` anew; a :class:`Game` is compiled, or found among those compiled in this process.

        Raises :class:`agentprm_core.worlds.base.UnsupportedGame` naming the game and what is not modelled.
        """
        compiled = game if isinstance(game, CompiledGame) else compiled_game(game)
        self.game = compiled
        self._everywhere = commands_everywhere(compiled)
        self._deciding = frozenset(act for act, changed in CHANGES.items() if changed & set(compiled.goal_reads))
        self.location = compiled.start_location
        self.held = None
        self.contents = compiled.start_contents
        self.present = compiled.start_present
        self.taken = ()
        self.opened = compiled.start_opened
        self.clean = compiled.start_clean
        self.hot = compiled.start_hot
        self.cool = compiled.start_cool
        self.toggled = compiled.start_toggled
        self.sliced = compiled.start_sliced
        self._won = satisfied(compiled.goal, self)
        self._hashed = None, None, None, None
        self._look_for_commands()
        return Observation(compiled.intro, self._admissible, float(self._won), self._won)

    def step(self, command: str) -> Observation:
        """Do ``command``; one that is not admissible changes nothing and the text says so (``Nothing happens.``)."""
        command = command.strip()
        action = self._action(command)
        if action is None:
            return Observation(NOTHING_HAPPENS, self._admissible, float(self._won), self._won)
        act, first, second = action
        text = act(self, first, second)
        if act in REARRANGING:
            self._look_for_commands()
        if act in self._deciding:
            self._won = satisfied(self.game.goal, self)
        return Observation(text, self._admissible, float(self._won), self._won)

    def clone(self) -> Self:
        """An independent copy in the same state."""
        twin = object.__new__(type(self))
        for name, value in zip(_NAMES, _PARTS(self)):
            setattr(twin, name, value)
        return twin

    def state_key(self) -> str:
        """32 hex digits; see :meth:`agentprm_core.worlds.base.World.state_key`.

        Covers every fact that a precondition, a text or the goal reads. What was looked at is not among them.
        """
        rest = self.location, self.held, self.opened, self.clean, self.hot, self.cool, self.toggled, self.sliced
        key = self._arrangement().copy()
        key.update(marshal.dumps(rest, 2))
        return key.hexdigest()

    def facts(self) -> list[str]:
        """The changing facts, as alfworld's hand-coded expert spells them: ``inreceptacle mug 1 cabinet 3``.

        In the order of predicates below, then of ids. (The published engine lists a set, in hash order.)
        """
        game = self.game
        pairs = sorted((o, r) for r, objects in enumerate(self.contents) for o in objects)
        facts = [f"inreceptacle {game.objects[o]} {game.receptacles[r]}" for o, r in pairs]
        if self.held is not None:
            facts += [f"holds {game.agent} {game.objects[self.held]}", f"holdsany {game.agent}"]
        facts += [f"opened {name}" for r, name in enumerate(game.receptacles) if self.opened >> r & 1]
        for predicate, mask in (
            *(("isclean", self.clean), ("ishot", self.hot), ("iscool", self.cool)),
            *(("istoggled", self.toggled), ("issliced", self.sliced)),
        ):
            facts += [f"{predicate} {name}" for o, name in enumerate(game.objects) if mask >> o & 1]
        return facts

    def holds(self, predicate: str, *numbers: int) -> bool:
        """Whether one ground fluent holds (:mod:`agentprm_core.worlds.alfworld.goal` gives the numbers)."""
        return _FLUENTS[predicate](self, *numbers)

    def _arrangement(self) -> hashlib.blake2b:
        """The hash of what lies where, to be copied and gone on with. Ints and tuples only, which format 2 of marshal
        writes the same everywhere."""
        contents, present, taken, hashed = self._hashed
        same = contents is self.contents and present is self.present and taken is self.taken  # as most actions leave it
        if hashed is None or not same:
            parts = self.contents, self.present, self.taken
            hashed = hashlib.blake2b(marshal.dumps(parts, 2), digest_size=16, key=self.game.digest.encode())
            self._hashed = *parts, hashed
        return hashed

    def _action(self, command: str) -> tuple[Callable[[State, int, int], str], int, int] | None:
        """What ``command`` stands for here; None where nothing would happen."""
        return self._here[command] if command in self._here else self._everywhere.get(command)

    def _look_for_commands(self) -> None:
        self._here, self._admissible = commands_now(self, self._everywhere)


_NAMES = State.__slots__ + FastWorld.__slots__
_PARTS = attrgetter(*_NAMES)
"""All parts of a world in one call: beams clone thousands."""
_FLUENTS = {
    "inreceptacle": lambda world, o, r: o in world.contents[r],
    "objectatlocation": lambda world, o, place: o in world.present[place],
    "atlocation": lambda world, place: world.location == place,
    "opened": lambda world, r: world.opened >> r & 1 == 1,
    "holds": lambda world, o: world.held == o,
    "holdsany": lambda world: world.held is not None,
    "isclean": lambda world, o: world.clean >> o & 1 == 1,
    "ishot": lambda world, o: world.hot >> o & 1 == 1,
    "iscool": lambda world, o: world.cool >> o & 1 == 1,
    "istoggled": lambda world, o: world.toggled >> o & 1 == 1,
    "issliced": lambda world, o: world.sliced >> o & 1 == 1,
}
