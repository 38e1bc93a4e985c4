"""Ways through the view, against the published search written down slowly."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from agentprm_core.worlds.babyai.routes import Routes

STEP = ((0, -1), (1, 0), (0, 1), (-1, 0))


def slow_way(heading: int, blocked: set[tuple[int, int]], goal: tuple[int, int], enter: bool) -> bytes | None:
    """Breadth-first over ((column, row), heading): marked when taken out, the last parent wins."""
    columns, rows = range(7 + (heading in (1, 2))), range(7 + (heading in (0, 1)))
    start = ((3, 6), 0)
    queue, marked, parent = [start], set(), {}
    while queue:
        here = queue.pop(0)
        marked.add(here)
        (x, y), way = here
        ahead = (x + STEP[way][0], y + STEP[way][1])
        if goal == ((x, y) if enter else ahead):
            moves = []
            while here != start:
                here, move = parent[here]
                moves.append(move)
            return bytes(reversed(moves))
        for move, state in ((2, (ahead, way)), (0, ((x, y), (way - 1) % 4)), (1, ((x, y), (way + 1) % 4))):
            (column, row), _ = state
            if column in columns and row in rows and state not in marked and (column, row) not in blocked:
                queue.append(state)
                parent[state] = (here, move)
    return None


CELLS = st.tuples(st.integers(0, 6), st.integers(0, 6)).filter(lambda cell: cell != (3, 6))


@settings(max_examples=150)
@given(st.integers(0, 3), st.sets(CELLS, max_size=9), st.lists(CELLS, min_size=1, max_size=3), CELLS)
def test_ways_are_those_of_the_published_search(heading, blocked, faced, doorway):
    blocked -= {doorway}
    walls = {(x, y) for x in range(7) for y in range(7) if y == 0 or x == 0}  # so that queues stay short
    blocked |= walls - {doorway}
    routes = Routes(heading, *([7 * y + x for x, y in cells] for cells in (blocked, faced, [doorway])))
    for cell in faced:
        assert routes.facing(7 * cell[1] + cell[0]) == slow_way(heading, blocked, cell, enter=False)
    assert routes.into(7 * doorway[1] + doorway[0]) == slow_way(heading, blocked, doorway, enter=True)
