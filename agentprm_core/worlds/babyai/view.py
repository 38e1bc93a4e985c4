"""What the agent sees: the 7×7 cells before it that nothing hides, as one integer.

The occlusion is minigrid's (``Grid.process_vis``): light spreads row by row from the agent, in each row first to the
right, then to the left, and from a lit cell that can be seen through to the next row straight and diagonally. A row has
seven lit and seven transparent bits, so each row is one look into a table.
"""

from __future__ import annotations

from agentprm_core.worlds.babyai.kinds import CLOSED, DOOR, KEY, LOCKED, WALL

SIZE = 7
"""Cells that a side of the view has. The agent is at the middle of the last row and looks at the first."""
OWN = SIZE * SIZE - 4
"""Index of the agent's own cell in the view, row by row."""
PAD = SIZE - 1
"""Walls around a maze, so that no view leaves it."""

_SHIFT = 8 * (SIZE * SIZE - 1 - OWN)
_OTHERS = ((1 << 8 * SIZE * SIZE) - 1) ^ (0xFF << _SHIFT)
_OPAQUE = {WALL, *(kind for kind in range(DOOR, KEY) if (kind - DOOR) % 3 in (CLOSED, LOCKED))}
_TRANSPARENT = bytes(kind not in _OPAQUE for kind in range(256))
_ROW = tuple(int.from_bytes(bytes(255 * (bits >> 6 - i & 1) for i in range(SIZE))) for bits in range(128))
_ROWS = tuple((SIZE * j, SIZE * j + SIZE, 8 * SIZE * (SIZE - 1 - j)) for j in reversed(range(SIZE)))


class _Spread(dict):
    """(lit bits of a row, which of its cells are transparent) → (all its lit bits, lit bits of the next row)."""

    def __missing__(self, row: tuple[int, bytes]) -> tuple[int, int]:
        bits, transparent = row
        lit, ahead = [bits >> 6 - i & 1 for i in range(SIZE)], [0] * SIZE
        for cells, side in ((range(SIZE - 1), 1), (reversed(range(1, SIZE)), -1)):
            for i in cells:
                if lit[i] and transparent[i]:
                    lit[i + side] = ahead[i + side] = ahead[i] = 1
        self[row] = found = int("".join(map(str, lit)), 2), int("".join(map(str, ahead)), 2)
        return found


_SPREAD = _Spread()


def look(things: bytearray, width: int, at: int, heading: int, kinds: bytearray, carried: int) -> int:
    """The view from ``at``: 49 kinds of cells, row by row from the far one, as a big-endian integer.

    ``things``: a maze of ``width`` padded by :data:`PAD` walls, a byte a cell; ``kinds``: 256 bytes, what each of them
    is; ``heading``: 0 right, 1 down, 2 left, 3 up; ``carried``: the kind that the own cell shows.
    """
    if heading == 3:
        first = at - PAD * width - 3
        view = b"".join([things[s : s + SIZE] for s in range(first, at, width)])
    elif heading == 1:
        first = at - 3
        view = b"".join([things[s : s + SIZE] for s in range(first, first + SIZE * width, width)])[::-1]
    elif heading == 0:
        first, rows = at - 3 * width, 6 * width + 1
        view = b"".join([things[s : s + rows : width] for s in range(first + PAD, first - 1, -1)])
    else:
        first, rows = at - 3 * width, 6 * width + 1
        view = b"".join([things[s : s + rows : width] for s in range(first, first - SIZE, -1)])[::-1]
    view = view.translate(kinds)
    transparent = view.translate(_TRANSPARENT)
    lit, mask = 0b0001000, 0
    for start, end, shift in _ROWS:
        here, lit = _SPREAD[lit, transparent[start:end]]
        mask |= _ROW[here] << shift
        if not lit:
            break
    return int.from_bytes(view) & mask & _OTHERS | carried << _SHIFT
