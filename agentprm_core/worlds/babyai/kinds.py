"""What a cell can hold, as one small number: minigrid's triple of type, colour and state."""

from __future__ import annotations

COLORS = ("red", "green", "blue", "purple", "yellow", "grey")
DOOR_STATES = ("open", "closed", "locked")
UNSEEN, EMPTY, WALL = 0, 1, 2
DOOR = 3
"""The first kind of door: six colours, three states each."""
KEY, BALL, BOX = 21, 27, 33
"""The first kind of each thing that can be carried: six colours each."""
OPEN, CLOSED, LOCKED = range(3)

_FIRST = {"key": KEY, "ball": BALL, "box": BOX}
_MINIGRID = {"unseen": 0, "empty": 1, "wall": 2, "door": 4, "key": 5, "ball": 6, "box": 7}


def door(color: int, state: int) -> int:
    """The kind of a door of a colour (its index in :data:`COLORS`) in a state."""
    return DOOR + 3 * color + state


def is_door(kind: int) -> bool:
    return DOOR <= kind < KEY


def door_state(kind: int) -> int:
    """:data:`OPEN`, :data:`CLOSED` or :data:`LOCKED`."""
    return (kind - DOOR) % 3


def color(kind: int) -> int:
    """The colour of a door or a thing, as its index in :data:`COLORS`."""
    return (kind - DOOR) // 3 if kind < KEY else (kind - KEY) % 6


NAMES = (
    *("", "", "wall"),
    *(f"{shade} {state} door" for shade in COLORS for state in DOOR_STATES),
    *(f"{shade} {thing}" for thing in _FIRST for shade in COLORS),
)
"""Kind → its name in the text."""

OF_TRIPLE = {
    (_MINIGRID["unseen"], 0, 0): UNSEEN,
    (_MINIGRID["empty"], 0, 0): EMPTY,
    (_MINIGRID["wall"], COLORS.index("grey"), 0): WALL,
    **{(_MINIGRID["door"], shade, state): door(shade, state) for shade in range(6) for state in range(3)},
    **{(_MINIGRID[thing], shade, 0): first + shade for thing, first in _FIRST.items() for shade in range(6)},
}
"""minigrid's (type, colour, state) → kind. What is not in it is in no level."""
