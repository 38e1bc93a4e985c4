"""Shortest ways through the view, with the published search's choice among equals.

AgentGym searches breadth-first over (cell, heading), tries forward, left, right, marks a state when it leaves the queue
and notes the parent of every queueing. A state may therefore wait in the queue several times; its parent is the last
that queued it, and the goal is the first state in the queue that will do. One pass over the layers gives both: the
parent is the predecessor whose *last* place in the layer is last, the rank is by *first* places. (Neighbours differ in
the parity of column + row + heading, so none shares a layer.)

Cells are those of the view and of one more column to its right or row behind it where the published ranges of
coordinates have them, which depends on the heading. Unseen cells and doors are free.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

from agentprm_core.worlds.babyai.view import OWN, SIZE

_STRIDE = SIZE + 1
_CELLS = _STRIDE * _STRIDE
_OUTSIDE = 4 * _CELLS


def _state(column: int, row: int, heading: int) -> int:
    """The number of (cell, heading in the view: 0 away from the agent, then clockwise)."""
    return 4 * (_STRIDE * row + column) + heading


def _neighbours(heading: int) -> tuple[tuple[int, int, int], ...]:
    columns = SIZE + (heading in (1, 2))
    rows = SIZE + (heading in (0, 1))
    table = [(_OUTSIDE, _OUTSIDE, _OUTSIDE)] * (_OUTSIDE + 1)
    for column, row, way in product(range(columns), range(rows), range(4)):
        x, y = column + (0, 1, 0, -1)[way], row + (-1, 0, 1, 0)[way]
        forward = _state(x, y, way) if 0 <= x < columns and 0 <= y < rows else _OUTSIDE
        table[_state(column, row, way)] = (
            forward,
            _state(column, row, (way - 1) % 4),
            _state(column, row, (way + 1) % 4),
        )
    return tuple(table)


_NEIGHBOURS = tuple(_neighbours(heading) for heading in range(4))
_START = _state(OWN % SIZE, OWN // SIZE, 0)
_IN = tuple(tuple(_state(i % SIZE, i // SIZE, way) for way in range(4)) for i in range(SIZE * SIZE))
"""View cell → the states that stand in it."""
_FACING = tuple(
    tuple(
        _state(column - dx, row - dy, way)
        for way, (dx, dy) in enumerate(((0, -1), (1, 0), (0, 1), (-1, 0)))
        if 0 <= column - dx < _STRIDE and 0 <= row - dy < _STRIDE
    )
    for row, column in product(range(SIZE), range(SIZE))
)
"""View cell → the states that stand next to it and face it."""


class Routes:
    """Shortest ways from the agent to things and open doors, for one view."""

    def __init__(self, heading: int, blocked: Iterable[int], face: Iterable[int], enter: Iterable[int]) -> None:
        """``heading``: of the agent in the maze; ``blocked``: the view's cells that nobody can step on.

        ``face``, ``enter``: the view's cells that ways are asked for; the search ends when it has one to each.
        """
        neighbours = _NEIGHBOURS[heading]
        closed = bytearray(_OUTSIDE + 1)
        closed[_OUTSIDE] = 1
        for cell in blocked:
            first = _IN[cell][0]
            closed[first : first + 4] = b"\1\1\1\1"
        wanted = [*map(_FACING.__getitem__, face), *map(_IN.__getitem__, enter)]
        order: list[int] = []
        came: dict[int, int] = {}
        by_first = by_last = [_START]
        while by_first:
            order += by_first
            reached = set(by_first)
            wanted = [states for states in wanted if reached.isdisjoint(states)]
            if not wanted:
                break
            for state in by_first:
                closed[state] = 1
            queued = [(ahead, state) for state in by_last for ahead in neighbours[state] if not closed[ahead]]
            lasts = dict(queued)
            came.update(lasts)
            if len(lasts) == len(queued) and by_first is by_last:
                by_first = by_last = list(lasts)
                continue
            by_last = list(dict(reversed(queued)))[::-1]
            by_first = list({ahead: None for state in by_first for ahead in neighbours[state] if not closed[ahead]})
        self._rank = {state: i for i, state in enumerate(order)}
        self._came, self._neighbours = came, neighbours

    def facing(self, cell: int) -> bytes | None:
        """The low-level actions of the way to face ``cell`` from next to it. None: there is no way."""
        return self._way(_FACING[cell])

    def into(self, cell: int) -> bytes | None:
        """The low-level actions of the way into ``cell``. None: there is no way."""
        return self._way(_IN[cell])

    def _way(self, goals: tuple[int, ...]) -> bytes | None:
        reached = [state for state in goals if state in self._rank]
        if not reached:
            return None
        state, moves = min(reached, key=self._rank.__getitem__), bytearray()
        while state != _START:
            before = self._came[state]
            moves.append(_ACTIONS[self._neighbours[before].index(state)])
            state = before
        return bytes(reversed(moves))


_ACTIONS = (2, 0, 1)
"""Low-level actions in the order in which the search tries them: forward, left, right."""
