"""Which commands are admissible in a state of the world, and the action each stands for."""

from __future__ import annotations

from collections.abc import Callable
from sys import intern

from agentprm_core.worlds.alfworld import actions
from agentprm_core.worlds.alfworld.compiled import CompiledGame
from agentprm_core.worlds.alfworld.state import State

Commands = dict[str, tuple[Callable[[State, int, int], str], int, int]]
"""Command → its action and the two numbers it takes."""
CommandsHere = dict[str, tuple[Callable[[State, int, int], str], int, int] | None]
"""The same, and None for what cannot be done here."""

STATES, GAMES = 20_000, 1_024
"""States (a kilobyte each) and games whose commands are remembered, in this process; beyond it starts afresh."""
_NOW: dict[tuple, tuple[CommandsHere, tuple[str, ...]]] = {}
_EVERYWHERE: dict[str, Commands] = {}


def commands_everywhere(game: CompiledGame) -> Commands:
    """Commands that are admissible at any place, but for going where one is; one dictionary for all worlds of a game.
    Sorted, which sorting them with a few others at each place is spared then."""
    found = _EVERYWHERE.get(game.digest)
    if found is None:
        goings = {f"go to {name}": (actions.go, r, 0) for r, name in enumerate(game.receptacles)}
        rest = {"help": (actions.say_help, 0, 0), "inventory": (actions.inventory, 0, 0), "look": (actions.look, 0, 0)}
        if len(_EVERYWHERE) >= GAMES:
            _EVERYWHERE.clear()
        found = _EVERYWHERE[game.digest] = dict(sorted((goings | rest).items()))
    return found


def commands_now(world: State, everywhere: Commands) -> tuple[CommandsHere, tuple[str, ...]]:
    """:func:`commands_here`, and all that is admissible, sorted. Worlds that play one game share both."""
    depends = _on_what(world)
    found = _NOW.get(depends)
    if found is None:  # places are come back to, and other episodes and clones have been there before
        here = commands_here(world)
        if len(_NOW) >= STATES:
            _NOW.clear()
        found = _NOW[depends] = here, _admissible(here, everywhere)
    return found


def commands_here(world: State) -> CommandsHere:
    """What the place, the hands and the contents add to :func:`commands_everywhere`, and what they forbid (None)."""
    game = world.game
    held = world.held
    commands: CommandsHere = {}
    for r in game.receptacles_at[world.location]:
        name = game.receptacles[r]
        commands[f"go to {name}"] = None
        commands[f"examine {name}"] = (actions.examine_receptacle, r, 0)
        closed = False
        if game.openable >> r & 1:
            closed = not world.opened >> r & 1
            if closed:
                commands[f"open {name}"] = (actions.open_receptacle, r, 0)
            else:
                commands[f"close {name}"] = (actions.close_receptacle, r, 0)
        for o in world.contents[r]:
            if held is None and not closed and game.pickupable >> o & 1:
                commands[f"take {game.objects[o]} from {name}"] = (actions.take, o, r)
            if game.toggleable >> o & 1:
                commands[f"use {game.objects[o]}"] = (actions.toggle, o, 0)
        if held is not None:
            _add_uses_of_receptacle(commands, game, held, r, closed)
    if held is not None:
        _add_uses_of_held(commands, world, held)
    return commands


def _admissible(here: CommandsHere, everywhere: Commands) -> tuple[str, ...]:
    added = [intern(command) for command, action in here.items() if action]  # texts that many states have
    return tuple(sorted([command for command in everywhere if command not in here] + added))


def _on_what(world: State) -> tuple:
    """The game, and all of its state that :func:`commands_here` reads."""
    place, contents, game = world.location, world.contents, world.game
    here = [contents[r] for r in game.receptacles_at[place]]
    return game.digest, place, world.held, world.opened, world.present[place], *here


def _add_uses_of_receptacle(commands: CommandsHere, game: CompiledGame, held: int, r: int, closed: bool) -> None:
    """What can be done to the held object with a receptacle. Heating, cooling and cleaning mind no closed door."""
    thing, name = game.objects[held], game.receptacles[r]
    if not closed and game.accepts[r] >> held & 1:
        commands[f"move {thing} to {name}"] = (actions.move, held, r)
    if game.sinks >> r & 1 and game.cleanable >> held & 1:
        commands[f"clean {thing} with {name}"] = (actions.clean, held, r)
    if game.microwaves >> r & 1 and game.heatable >> held & 1:
        commands[f"heat {thing} with {name}"] = (actions.heat, held, r)
    if game.fridges >> r & 1 and game.coolable >> held & 1:
        commands[f"cool {thing} with {name}"] = (actions.cool, held, r)


def _add_uses_of_held(commands: CommandsHere, world: State, held: int) -> None:
    """Looking at the held object (the only one that can be examined), and slicing with it."""
    game = world.game
    thing = game.objects[held]
    commands[f"examine {thing}"] = (actions.examine_object, held, 0)
    if game.knives >> held & 1:
        for o in world.present[world.location]:
            if game.sliceable >> o & 1:
                commands[f"slice {game.objects[o]} with {thing}"] = (actions.slice_object, o, held)
