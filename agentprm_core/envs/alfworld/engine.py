"""The fast ALFWorld engine: says exactly what the published one says, in microseconds.

The world's state is a handful of immutable values (a location, what is held, contents by receptacle, bit masks of
properties), so that a clone copies references. Each admissible command is kept with the action it stands for.
:mod:`benchmarks.engine_parity` plays it side by side with TextWorld.
"""

from __future__ import annotations

import hashlib
import marshal
from typing import Self

from agentprm_core.envs.alfworld.compile import compile_game
from agentprm_core.envs.alfworld.compiled import CompiledGame
from agentprm_core.envs.alfworld.goal import satisfied
from agentprm_core.envs.alfworld.names import listing
from agentprm_core.envs.base import Observation
from agentprm_core.types import Game

NOTHING_HAPPENS = "Nothing happens."

HELP = """Available commands:
  look:                             look around your current location
  inventory:                        check your current inventory
  go to (receptacle):               move to a receptacle
  open (receptacle):                open a receptacle
  close (receptacle):               close a receptacle
  take (object) from (receptacle):  take an object from a receptacle
  move (object) to (receptacle):  place an object in or on a receptacle
  examine (something):              examine a receptacle or an object
  use (object):                     use an object
  heat (object) with (receptacle):  heat an object using a receptacle
  clean (object) with (receptacle): clean an object using a receptacle
  cool (object) with (receptacle):  cool an object using a receptacle
  slice (object) with (object):     slice an object using a sharp object"""


class FastWorld:
    """One episode in one game. ``reset`` before anything else."""

    __slots__ = (
        *("_game", "_everywhere", "_deciding", "_commands", "_admissible", "_won"),
        *("_location", "_held", "_contents", "_present", "_taken"),
        *("_opened", "_clean", "_hot", "_cool", "_toggled", "_sliced"),
    )

    def reset(self, game: Game | CompiledGame) -> Observation:
        """Start ``game`` anew; a :class:`Game` is compiled, or found among those compiled in this process.

        Raises :class:`agentprm_core.envs.base.UnsupportedGame` naming the game and what is not modelled.
        """
        compiled = game if isinstance(game, CompiledGame) else compiled_game(game)
        self._game = compiled
        self._everywhere = _commands_everywhere(compiled)
        self._deciding = frozenset(act for act, changed in _CHANGES.items() if changed & set(compiled.goal_reads))
        self._location = compiled.start_location
        self._held = None
        self._contents = compiled.start_contents
        self._present = compiled.start_present
        self._taken = ()
        self._opened = compiled.start_opened
        self._clean = compiled.start_clean
        self._hot = compiled.start_hot
        self._cool = compiled.start_cool
        self._toggled = compiled.start_toggled
        self._sliced = compiled.start_sliced
        self._won = satisfied(compiled.goal, self)
        self._list_commands()
        return Observation(compiled.intro, self._admissible, self._won)

    def step(self, command: str) -> Observation:
        """Do ``command``; one that is not admissible changes nothing and the text says so (``Nothing happens.``)."""
        action = self._commands.get(command.strip())
        if action is None:
            return Observation(NOTHING_HAPPENS, self._admissible, self._won)
        act, first, second = action
        text = act(self, first, second)
        if act in _REARRANGING:
            self._list_commands()
        if act in self._deciding:
            self._won = satisfied(self._game.goal, self)
        return Observation(text, self._admissible, self._won)

    def clone(self) -> Self:
        """An independent copy in the same state."""
        twin = object.__new__(type(self))
        for name in FastWorld.__slots__:
            setattr(twin, name, getattr(self, name))
        return twin

    def state_key(self) -> str:
        """32 hex digits; see :meth:`agentprm_core.envs.base.World.state_key`.

        Covers every fact that a precondition, a text or the goal reads. What was looked at is not among them.
        """
        state = (
            *(self._location, self._held, self._contents, self._present, self._taken),
            *(self._opened, self._clean, self._hot, self._cool, self._toggled, self._sliced),
        )
        content = marshal.dumps(state, 2)  # ints, None and tuples only: format 2 writes them the same everywhere
        return hashlib.blake2b(content, digest_size=16, key=self._game.digest.encode()).hexdigest()

    def facts(self) -> list[str]:
        """The changing facts, as alfworld's hand-coded expert spells them: ``inreceptacle mug 1 cabinet 3``.

        In the order of predicates below, then of ids. (The published engine lists a set, in hash order.)
        """
        game = self._game
        pairs = sorted((o, r) for r, objects in enumerate(self._contents) for o in objects)
        facts = [f"inreceptacle {game.objects[o]} {game.receptacles[r]}" for o, r in pairs]
        if self._held is not None:
            facts += [f"holds {game.agent} {game.objects[self._held]}", f"holdsany {game.agent}"]
        facts += [f"opened {name}" for r, name in enumerate(game.receptacles) if self._opened >> r & 1]
        for predicate, mask in (
            *(("isclean", self._clean), ("ishot", self._hot), ("iscool", self._cool)),
            *(("istoggled", self._toggled), ("issliced", self._sliced)),
        ):
            facts += [f"{predicate} {name}" for o, name in enumerate(game.objects) if mask >> o & 1]
        return facts

    def holds(self, predicate: str, *numbers: int) -> bool:
        """Whether one ground fluent holds (:mod:`agentprm_core.envs.alfworld.goal` gives the numbers)."""
        return _FLUENTS[predicate](self, *numbers)

    def _list_commands(self) -> None:
        """Set the admissible commands, each with its action, for the present place, hands and contents."""
        game = self._game
        commands = self._everywhere.copy()
        held = self._held
        for r in game.receptacles_at[self._location]:
            receptacle = game.receptacles[r]
            del commands[f"go to {receptacle}"]
            commands[f"examine {receptacle}"] = (_examine_receptacle, r, 0)
            closed = False
            if game.openable >> r & 1:
                closed = not self._opened >> r & 1
                commands[f"{'open' if closed else 'close'} {receptacle}"] = (_open if closed else _close, r, 0)
            if held is not None:
                self._list_uses_of_held(commands, r, closed)
            for o in self._contents[r]:
                if held is None and not closed and game.pickupable >> o & 1:
                    commands[f"take {game.objects[o]} from {receptacle}"] = (_take, o, r)
                if game.toggleable >> o & 1:
                    commands[f"use {game.objects[o]}"] = (_toggle, o, 0)
        if held is not None:
            commands[f"examine {game.objects[held]}"] = (_examine_object, held, 0)
            if game.knives >> held & 1:
                for o in self._present[self._location]:
                    if game.sliceable >> o & 1:
                        commands[f"slice {game.objects[o]} with {game.objects[held]}"] = (_slice, o, held)
        self._commands = commands
        self._admissible = tuple(sorted(commands))

    def _list_uses_of_held(self, commands: dict, r: int, closed: bool) -> None:
        game = self._game
        o = self._held
        if not closed and game.accepts[r] >> o & 1:
            commands[f"move {game.objects[o]} to {game.receptacles[r]}"] = (_move, o, r)
        if game.sinks >> r & 1 and game.cleanable >> o & 1:
            commands[f"clean {game.objects[o]} with {game.receptacles[r]}"] = (_clean, o, r)
        if game.microwaves >> r & 1 and game.heatable >> o & 1:
            commands[f"heat {game.objects[o]} with {game.receptacles[r]}"] = (_heat, o, r)
        if game.fridges >> r & 1 and game.coolable >> o & 1:
            commands[f"cool {game.objects[o]} with {game.receptacles[r]}"] = (_cool, o, r)


def compiled_game(game: Game) -> CompiledGame:
    """The compiled form of ``game``, compiled at most once in this process while it is among the latest used."""
    compiled = _COMPILED.get(game)
    if compiled is None:
        compiled = compile_game(game)
        remember(game, compiled)
    return compiled


def remember(game: Game, compiled: CompiledGame) -> None:
    """Let worlds of this process find ``compiled`` when they are reset to ``game``."""
    if len(_COMPILED) >= MOST_COMPILED:
        del _COMPILED[next(iter(_COMPILED))]
    _COMPILED[game] = compiled


MOST_COMPILED = 8192
"""Compiled games a process keeps; the whole published set is 3,828. The oldest goes first."""

_COMPILED: dict[Game, CompiledGame] = {}


def _commands_everywhere(game: CompiledGame) -> dict[str, tuple]:
    """Commands that are admissible at any place, but for going where one is."""
    commands = {f"go to {name}": (_go, r, 0) for r, name in enumerate(game.receptacles)}
    return commands | {"help": (_help, 0, 0), "inventory": (_inventory, 0, 0), "look": (_look, 0, 0)}


def _go(world: FastWorld, r: int, _: int) -> str:
    world._location = world._game.location_of[r]
    return f"You arrive at {world._game.receptacles[r]}. {_examine_receptacle(world, r, 0)}"


def _open(world: FastWorld, r: int, _: int) -> str:
    world._opened |= 1 << r
    return f"You open the {world._game.receptacles[r]}. {_examine_receptacle(world, r, 0)}"


def _close(world: FastWorld, r: int, _: int) -> str:
    world._opened &= ~(1 << r)
    return f"You close the {world._game.receptacles[r]}."


def _take(world: FastWorld, o: int, r: int) -> str:
    game = world._game
    place = game.location_of[r]
    world._held = o
    world._contents = _without(world._contents, r, o)
    world._present = _without(world._present, place, o)
    if len(game.receptacles_at[place]) > 1:
        world._taken = tuple(sorted((*world._taken, (o, r))))
    return f"You pick up the {game.objects[o]} from the {game.receptacles[r]}."


def _move(world: FastWorld, o: int, r: int) -> str:
    game = world._game
    world._held = None
    world._contents = _with(world._contents, r, o)
    world._present = _with(world._present, game.location_of[r], o)
    world._taken = tuple([pair for pair in world._taken if pair != (o, r)])
    return f"You move the {game.objects[o]} to the {game.receptacles[r]}."


def _clean(world: FastWorld, o: int, r: int) -> str:
    world._clean |= 1 << o
    return f"You clean the {world._game.objects[o]} using the {world._game.receptacles[r]}."


def _heat(world: FastWorld, o: int, r: int) -> str:
    world._hot |= 1 << o
    world._cool &= ~(1 << o)
    return f"You heat the {world._game.objects[o]} using the {world._game.receptacles[r]}."


def _cool(world: FastWorld, o: int, r: int) -> str:
    world._cool |= 1 << o
    world._hot &= ~(1 << o)
    return f"You cool the {world._game.objects[o]} using the {world._game.receptacles[r]}."


def _toggle(world: FastWorld, o: int, _: int) -> str:
    """Once used, a lamp counts as toggled for good: the domain never takes ``isToggled`` back."""
    world._toggled |= 1 << o
    return f"You turn on the {world._game.objects[o]}."


def _slice(world: FastWorld, o: int, knife: int) -> str:
    world._sliced |= 1 << o
    return f"You sliced the {world._game.objects[o]} with the {world._game.objects[knife]}."


def _help(_world: FastWorld, _first: int, _second: int) -> str:
    return HELP


def _inventory(world: FastWorld, _first: int, _second: int) -> str:
    if world._held is None:
        return "You are not carrying anything."
    return f"You are carrying: a {world._game.objects[world._held]}."


def _look(world: FastWorld, _first: int, _second: int) -> str:
    """Where one stands. ``Next to it`` come objects taken from one receptacle and put into another at that place."""
    game = world._game
    here = game.receptacles_at[world._location]
    if not here:
        return "You are in the middle of a room. Looking quickly around you, you see nothing."
    facing = listing([game.receptacles[r] for r in here])
    stray = [f"a {game.objects[o]}" for o in world._present[world._location] for r in here if (o, r) in world._taken]
    return f"You are facing the {facing}. Next to it, you see {listing(stray)}."


def _examine_receptacle(world: FastWorld, r: int, _: int) -> str:
    game = world._game
    name = game.receptacles[r]
    if game.openable >> r & 1 and not world._opened >> r & 1:
        return f"The {name} is closed."
    seen = listing([f"a {game.objects[o]}" for o in world._contents[r]])
    if game.openable >> r & 1:
        return f"The {name} is open. In it, you see {seen}."
    return f"On the {name}, you see {seen}."


def _examine_object(world: FastWorld, o: int, _: int) -> str:
    game = world._game
    name = game.objects[o]
    if game.inside[o]:
        return f"This is a normal {name}. In it, you see {game.inside[o]}."
    clean, hot, cool, sliced = (mask >> o & 1 for mask in (world._clean, world._hot, world._cool, world._sliced))
    states = ["hot"] if hot else ["cool"] if cool else []
    if clean:
        states.append("clean")
    if states == ["cool"] and not sliced:
        return f"This is a cold {name}."
    if states:
        return f"This is a {' and '.join(states)}{' sliced' if sliced else ''} {name}."
    if (game.toggleable & world._toggled) >> o & 1:
        return f"This {name} is on."
    if sliced and game.sliceable >> o & 1:
        return f"This is a sliced {name}."
    return f"There's nothing special about {name}."


_REARRANGING = frozenset((_go, _open, _close, _take, _move))
"""Actions after which other commands are admissible."""

_CHANGES = {
    _go: {"atlocation"},
    _open: {"opened"},
    _close: {"opened"},
    _take: {"inreceptacle", "objectatlocation", "holds", "holdsany"},
    _move: {"inreceptacle", "objectatlocation", "holds", "holdsany"},
    _clean: {"isclean"},
    _heat: {"ishot", "iscool"},
    _cool: {"ishot", "iscool"},
    _toggle: {"istoggled"},
    _slice: {"issliced"},
}
"""Action → the fluents it may change."""

_FLUENTS = {
    "inreceptacle": lambda world, o, r: o in world._contents[r],
    "objectatlocation": lambda world, o, place: o in world._present[place],
    "atlocation": lambda world, place: world._location == place,
    "opened": lambda world, r: world._opened >> r & 1 == 1,
    "holds": lambda world, o: world._held == o,
    "holdsany": lambda world: world._held is not None,
    "isclean": lambda world, o: world._clean >> o & 1 == 1,
    "ishot": lambda world, o: world._hot >> o & 1 == 1,
    "iscool": lambda world, o: world._cool >> o & 1 == 1,
    "istoggled": lambda world, o: world._toggled >> o & 1 == 1,
    "issliced": lambda world, o: world._sliced >> o & 1 == 1,
}


def _with(groups: tuple[tuple[int, ...], ...], group: int, o: int) -> tuple[tuple[int, ...], ...]:
    """``groups`` with ``o`` in one of them, in its place in the order."""
    if o in groups[group]:
        return groups
    return (*groups[:group], tuple(sorted((*groups[group], o))), *groups[group + 1 :])


def _without(groups: tuple[tuple[int, ...], ...], group: int, o: int) -> tuple[tuple[int, ...], ...]:
    return (*groups[:group], tuple([x for x in groups[group] if x != o]), *groups[group + 1 :])
