"""Missions: when a low-level action fulfils what the agent was told, exactly as minigrid verifies it.

A mission is a tree of clauses (go to, open, pick up, put next to) and joins (and, before, after). What a verifier
remembers from step to step is one list: the positions it last noted for the things of a clause, what was carried at the
step before, which halves of a join are done. minigrid notes positions anew at drops alone, so a thing that was picked
up still counts as lying where it lay; that is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, final

PICKUP, DROP, TOGGLE = 3, 4, 5
"""Low-level actions that verifiers ask for, as minigrid numbers them."""
SUCCESS, FAILURE, GOES_ON = 1, -1, 0

_VERBS = {"GoToInstr": "go to", "OpenInstr": "open", "PickupInstr": "pick up", "PutNextInstr": "put"}
_JOINS = {"AndInstr": "and", "BeforeInstr": "before", "AfterInstr": "after"}


class InPlay(Protocol):
    """What a verifier reads of a level in play; it writes ``memory`` alone."""

    memory: list
    things: bytearray
    """By cell, the number of what lies there."""
    carrying: int

    @property
    def width(self) -> int:
        """Cells of a row."""
        ...

    def front(self) -> int: ...
    def is_door(self, thing: int) -> bool: ...
    def is_open(self, thing: int) -> bool: ...


@final
@dataclass(frozen=True, slots=True)
class Clause:
    """One thing to do. Numbers of things are those of the maze."""

    verb: str
    things: tuple[int, ...]
    """Any of them will do."""
    noted: int
    """Where in the memory the noted positions are: of the things, or of those that something is put next to."""
    carried: int
    """Where in the memory it is what was carried at the step before."""
    strict: bool
    """Whether the wrong door or thing fails the mission."""


@dataclass(frozen=True, slots=True)
class Join:
    """Two things to do: ``and`` in any order, ``before`` first ``a``, ``after`` first ``b``."""

    how: str
    a: Clause | Join
    b: Clause | Join
    done: int
    """Where in the memory the two flags are: ``a`` is done, ``b`` is done."""


@dataclass(frozen=True, slots=True)
class Mission:
    """A tree of clauses and what its verifiers remember at the start."""

    root: Clause | Join
    memory: tuple
    tracked: tuple[tuple[int, tuple[int, ...]], ...]
    """(where in the memory, things): positions to note anew at every drop."""


def compile_mission(instruction, number_of: Callable[[object], int], place: Callable[[int, int], int]) -> Mission:
    """A mission from minigrid's verifier, right after its reset.

    ``number_of``: a thing's number in the maze; ``place``: a cell's index there, from column and row.
    """
    memory: list = []
    tracked: list[tuple[int, tuple[int, ...]]] = []

    def note(description) -> int:
        memory.append(tuple(place(*position) for position in description.obj_poss))
        tracked.append((len(memory) - 1, tuple(map(number_of, description.obj_set))))
        return len(memory) - 1

    def visit(node) -> Clause | Join:
        kind = type(node).__name__
        if kind in _JOINS:
            a, b = visit(node.instr_a), visit(node.instr_b)
            memory.extend((False, False))
            return Join(_JOINS[kind], a, b, len(memory) - 2)
        moved = note(node.desc_move if kind == "PutNextInstr" else node.desc)
        things = tracked[-1][1]
        noted = note(node.desc_fixed) if kind == "PutNextInstr" else moved
        memory.append(0)
        return Clause(_VERBS[kind], things, noted, len(memory) - 1, getattr(node, "strict", False))

    root = visit(instruction)
    return Mission(root, tuple(memory), tuple(tracked))


def verify(node: Clause | Join, maze: InPlay, action: int) -> int:
    """Whether the low-level ``action`` that was just done fulfils or fails ``node``; updates ``maze.memory``."""
    if type(node) is Clause:
        return _VERIFY[node.verb](node, maze, action)
    memory, first, second = maze.memory, node.done, node.done + 1
    if node.how == "and":
        if not memory[first]:
            memory[first] = verify(node.a, maze, action) == SUCCESS
        if not memory[second]:
            memory[second] = verify(node.b, maze, action) == SUCCESS
        return SUCCESS if memory[first] and memory[second] else GOES_ON
    before, then = (node.a, node.b) if node.how == "before" else (node.b, node.a)
    if not memory[first]:
        result = verify(before, maze, action)
        if result != SUCCESS:
            return result
        memory[first] = True
    return verify(then, maze, action)


def _go_to(clause: Clause, maze: InPlay, action: int) -> int:
    return SUCCESS if maze.front() in maze.memory[clause.noted] else GOES_ON


def _open(clause: Clause, maze: InPlay, action: int) -> int:
    if action != TOGGLE:
        return GOES_ON
    front = maze.things[maze.front()]
    if front in clause.things and maze.is_open(front):
        return SUCCESS
    return FAILURE if clause.strict and maze.is_door(front) else GOES_ON


def _pick_up(clause: Clause, maze: InPlay, action: int) -> int:
    before, maze.memory[clause.carried] = maze.memory[clause.carried], maze.carrying
    if action != PICKUP:
        return GOES_ON
    if not before and maze.carrying in clause.things:
        return SUCCESS
    return FAILURE if clause.strict and maze.carrying else GOES_ON


def _put(clause: Clause, maze: InPlay, action: int) -> int:
    before, maze.memory[clause.carried] = maze.memory[clause.carried], maze.carrying
    if clause.strict and action == PICKUP and maze.carrying:
        return FAILURE
    if action != DROP or before not in clause.things:
        return GOES_ON
    lies = maze.things.find(before)  # -1 where the drop failed
    steps = {1, -1, maze.width, -maze.width}
    near = lies >= 0 and any(other - lies in steps for other in maze.memory[clause.noted])
    return SUCCESS if near else GOES_ON


_VERIFY = {"go to": _go_to, "open": _open, "pick up": _pick_up, "put": _put}
