"""From a game's PDDL problem to a :class:`CompiledGame`. Refuses, by name, what the fast engine does not model."""

from __future__ import annotations

from agentprm_core.types import Game
from agentprm_core.worlds.alfworld.compiled import CompiledGame, game_digest
from agentprm_core.worlds.alfworld.goal import Formula, Grounder, fluents
from agentprm_core.worlds.alfworld.index import Index
from agentprm_core.worlds.alfworld.names import listing
from agentprm_core.worlds.alfworld.pddl import PddlError, parse_problem
from agentprm_core.worlds.alfworld.reach import Reach
from agentprm_core.worlds.base import UnsupportedGame

MOST_COMPILED = 8192
"""Compiled games a process keeps; the whole published set is 3,828. The oldest goes first."""

_COMPILED: dict[Game, CompiledGame] = {}

_PROPERTIES = ("clean", "hot", "cool", "toggled", "sliced")
_AFFORDANCES = ("pickupable", "cleanable", "heatable", "coolable", "toggleable", "sliceable")


def compile_game(game: Game) -> CompiledGame:
    """Compile ``game``. Raises :class:`UnsupportedGame` naming the game and the construct that is not modelled."""
    try:
        return _compile(game)
    except PddlError as error:
        raise UnsupportedGame(f"{game.id}: {error}") from error


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


def _compile(game: Game) -> CompiledGame:
    problem = parse_problem(game.payload)
    index = Index(problem)
    objects = tuple([index.names[entity] for entity in index.objects])
    receptacles = tuple([index.names[entity] for entity in index.receptacles])
    goal = _goal(index)
    room = room_text(receptacles, index.receptacles_at[index.start])
    return CompiledGame(
        game_id=game.id,
        digest=game_digest(game),
        agent=index.agent,
        intro=f"{room}\n\nYour task is to: {game.goal}".strip(),
        objects=objects,
        receptacles=receptacles,
        location_of=index.location_of,
        receptacles_at=index.receptacles_at,
        accepts=index.accepts,
        inside=_inside(index, objects),
        openable=index.openable,
        **{name: index.masks[name] for name in _AFFORDANCES},
        knives=index.knives,
        sinks=index.sinks,
        microwaves=index.microwaves,
        fridges=index.fridges,
        goal=goal,
        goal_reads=tuple(sorted(fluents(goal))),
        start_location=index.start,
        start_contents=index.contents,
        start_present=index.present,
        start_opened=index.opened,
        **{f"start_{name}": index.masks[f"is{name}"] for name in _PROPERTIES},
    )


def room_text(receptacles: tuple[str, ...], here: tuple[int, ...]) -> str:
    """The opening: every receptacle of the room, unless the agent already stands before some (``here``)."""
    if here:
        facing = listing([receptacles[r] for r in here])
        return f"You are facing the {facing}. Next to it, you see nothing."
    seen = listing([f"a {name}" for name in receptacles])
    return f"You are in the middle of a room. Looking quickly around you, you see {seen}."


def _inside(index: Index, objects: tuple[str, ...]) -> tuple[str, ...]:
    holders = index.masks["isreceptacleobject"]
    return tuple(
        [
            listing([f"a {objects[i]}" for i in index.inner.get(o, ()) if i != o]) if holders >> o & 1 else ""
            for o in range(len(objects))
        ]
    )


def _goal(index: Index) -> Formula:
    reach = Reach(index)
    goal = Grounder(index.problem.objects, reach.static, reach.fluent).ground(index.problem.goal, {})
    if isinstance(goal, bool):
        raise PddlError("the goal holds from the start to the end" if goal else "no play can reach the goal")
    return goal
