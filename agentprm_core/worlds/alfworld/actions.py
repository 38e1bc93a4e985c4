"""What each action does to the world and what the game says about it: ALFWorld's rules and its text grammar.

An action takes the world and two numbers (the objects or receptacles it is about, 0 where there is none), changes the
world, and returns the observation. Whether it may be done now is decided in
:mod:`agentprm_core.worlds.alfworld.commands`.
"""

from __future__ import annotations

from agentprm_core.worlds.alfworld.names import listing
from agentprm_core.worlds.alfworld.state import State

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


def go(world: State, r: int, _: int) -> str:
    world.location = world.game.location_of[r]
    return f"You arrive at {world.game.receptacles[r]}. {examine_receptacle(world, r, 0)}"


def open_receptacle(world: State, r: int, _: int) -> str:
    world.opened |= 1 << r
    return f"You open the {world.game.receptacles[r]}. {examine_receptacle(world, r, 0)}"


def close_receptacle(world: State, r: int, _: int) -> str:
    world.opened &= ~(1 << r)
    return f"You close the {world.game.receptacles[r]}."


def take(world: State, o: int, r: int) -> str:
    game = world.game
    place = game.location_of[r]
    world.held = o
    world.contents = _without(world.contents, r, o)
    world.present = _without(world.present, place, o)
    if len(game.receptacles_at[place]) > 1:
        world.taken = tuple(sorted((*world.taken, (o, r))))
    return f"You pick up the {game.objects[o]} from the {game.receptacles[r]}."


def move(world: State, o: int, r: int) -> str:
    game = world.game
    world.held = None
    world.contents = _with(world.contents, r, o)
    world.present = _with(world.present, game.location_of[r], o)
    world.taken = tuple([pair for pair in world.taken if pair != (o, r)])
    return f"You move the {game.objects[o]} to the {game.receptacles[r]}."


def clean(world: State, o: int, r: int) -> str:
    world.clean |= 1 << o
    return f"You clean the {world.game.objects[o]} using the {world.game.receptacles[r]}."


def heat(world: State, o: int, r: int) -> str:
    world.hot |= 1 << o
    world.cool &= ~(1 << o)
    return f"You heat the {world.game.objects[o]} using the {world.game.receptacles[r]}."


def cool(world: State, o: int, r: int) -> str:
    world.cool |= 1 << o
    world.hot &= ~(1 << o)
    return f"You cool the {world.game.objects[o]} using the {world.game.receptacles[r]}."


def toggle(world: State, o: int, _: int) -> str:
    """Once used, a lamp counts as toggled for good: the domain never takes ``isToggled`` back."""
    world.toggled |= 1 << o
    return f"You turn on the {world.game.objects[o]}."


def slice_object(world: State, o: int, knife: int) -> str:
    world.sliced |= 1 << o
    return f"You sliced the {world.game.objects[o]} with the {world.game.objects[knife]}."


def say_help(_world: State, _first: int, _second: int) -> str:
    return HELP


def inventory(world: State, _first: int, _second: int) -> str:
    if world.held is None:
        return "You are not carrying anything."
    return f"You are carrying: a {world.game.objects[world.held]}."


def look(world: State, _first: int, _second: int) -> str:
    """Where one stands. ``Next to it`` come objects taken from one receptacle and put into another at that place."""
    game = world.game
    here = game.receptacles_at[world.location]
    if not here:
        return "You are in the middle of a room. Looking quickly around you, you see nothing."
    facing = listing([game.receptacles[r] for r in here])
    stray = [f"a {game.objects[o]}" for o in world.present[world.location] for r in here if (o, r) in world.taken]
    return f"You are facing the {facing}. Next to it, you see {listing(stray)}."


def examine_receptacle(world: State, r: int, _: int) -> str:
    game = world.game
    name = game.receptacles[r]
    if game.openable >> r & 1 and not world.opened >> r & 1:
        return f"The {name} is closed."
    seen = listing([f"a {game.objects[o]}" for o in world.contents[r]])
    if game.openable >> r & 1:
        return f"The {name} is open. In it, you see {seen}."
    return f"On the {name}, you see {seen}."


def examine_object(world: State, o: int, _: int) -> str:
    game = world.game
    name = game.objects[o]
    if game.inside[o]:
        return f"This is a normal {name}. In it, you see {game.inside[o]}."
    clean, hot, cool, sliced = (mask >> o & 1 for mask in (world.clean, world.hot, world.cool, world.sliced))
    states = ["hot"] if hot else ["cool"] if cool else []
    if clean:
        states.append("clean")
    if states == ["cool"] and not sliced:
        return f"This is a cold {name}."
    if states:
        return f"This is a {' and '.join(states)}{' sliced' if sliced else ''} {name}."
    if (game.toggleable & world.toggled) >> o & 1:
        return f"This {name} is on."
    if sliced and game.sliceable >> o & 1:
        return f"This is a sliced {name}."
    return f"There's nothing special about {name}."


REARRANGING = frozenset((go, open_receptacle, close_receptacle, take, move))
"""Actions after which other commands are admissible."""

CHANGES = {
    go: {"atlocation"},
    open_receptacle: {"opened"},
    close_receptacle: {"opened"},
    take: {"inreceptacle", "objectatlocation", "holds", "holdsany"},
    move: {"inreceptacle", "objectatlocation", "holds", "holdsany"},
    clean: {"isclean"},
    heat: {"ishot", "iscool"},
    cool: {"ishot", "iscool"},
    toggle: {"istoggled"},
    slice_object: {"issliced"},
}
"""Action → the fluents it may change."""


def _with(groups: tuple[tuple[int, ...], ...], group: int, o: int) -> tuple[tuple[int, ...], ...]:
    """``groups`` with ``o`` in one of them, in its place in the order."""
    if o in groups[group]:
        return groups
    return (*groups[:group], tuple(sorted((*groups[group], o))), *groups[group + 1 :])


def _without(groups: tuple[tuple[int, ...], ...], group: int, o: int) -> tuple[tuple[int, ...], ...]:
    return (*groups[:group], tuple([x for x in groups[group] if x != o]), *groups[group + 1 :])
