"""What AgentGym says of a view, and which actions it offers and refuses there.

All of it depends on the view, the heading and what is carried, so scenes are kept: the same view costs a look-up.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from agentprm_core.worlds.babyai import kinds
from agentprm_core.worlds.babyai.routes import Routes
from agentprm_core.worlds.babyai.view import OWN, SIZE

CHECK = "check available actions"
UNKNOWN = "The action is not recognized. Please check valid actions."
NO_CHANGE = "No change in state."
COMPLETED = "\n The task is completed."

_PICKUP, _DROP, _TOGGLE, _FORWARD = b"\3", b"\4", b"\5", b"\2"
_FRONT = OWN - SIZE
_AHEAD = tuple(range(_FRONT, -1, -SIZE))


def _distance(cell: int) -> int:
    return abs(cell % SIZE - SIZE // 2) + SIZE - 1 - cell // SIZE


def _where(cell: int) -> str:
    front, right = SIZE - 1 - cell // SIZE, cell % SIZE - SIZE // 2
    if right == 0:
        return f"right in front of you {front} steps away. "
    return f"{front} steps in front of you and {abs(right)} steps to your {'right' if right > 0 else 'left'}. "


_ORDER = tuple(sorted((cell for cell in range(SIZE * SIZE) if cell != OWN), key=_distance))
"""Cells of the view, near ones first, those of a distance from the far row on and from left to right."""
_WHERE = tuple(map(_where, range(SIZE * SIZE)))


@dataclass(frozen=True, slots=True)
class Scene:
    """One view in words."""

    text: str
    actions: dict[str, bytes]
    """Text action → its low-level actions, in the published order."""
    refusals: dict[str, str]
    """What is no action here and refused with a reason of its own."""
    admissible: tuple[str, ...]
    """The actions, sorted."""
    listed: str
    """The line ``Available actions: […]`` that AgentGym ends every reply with."""


@lru_cache(maxsize=8192)
def describe(image: int, heading: int, carried: int) -> Scene:
    """The scene of a view (:mod:`.view`) with that heading (0 right, then clockwise).

    ``carried``: the kind of what is carried, :data:`agentprm_core.worlds.babyai.kinds.EMPTY` for nothing.
    """
    cells = image.to_bytes(SIZE * SIZE)
    seen = [cell for cell in _ORDER if cells[cell] > kinds.EMPTY]
    named = [(cell, cells[cell], kinds.NAMES[cells[cell]]) for cell in seen if cells[cell] != kinds.WALL]
    facing = next((cell for cell in _AHEAD if cells[cell] == kinds.WALL or cells[cell] >= kinds.BOX), None)
    actions, refusals = _actions(cells, seen, named, heading, carried, facing)
    return Scene(
        text=_text(cells, bool(seen), named, carried, facing),
        actions=actions,
        refusals=refusals,
        admissible=tuple(sorted(actions)),
        listed="\nAvailable actions: [" + ", ".join([f'"{action}"' for action in actions]) + "]",
    )


def _text(cells: bytes, any_seen: bool, named: list, carried: int, facing: int | None) -> str:
    parts = ["You cannot see any objects within sight."]
    if any_seen:
        parts = ["In front of you in this room, you can see several objects: "]
        counts: dict[str, int] = {}
        for cell, _, name in named:
            counts[name] = number = counts.get(name, 0) + 1
            parts.append(f"There is a {name} {number} {_WHERE[cell]} ")
    parts.append("The room has walls around you. ")
    if facing is not None:
        barrier = "wall" if cells[facing] == kinds.WALL else "box"
        parts.append(f"You are facing a {barrier} {_distance(facing)} steps away. ")
    carries = carried != kinds.EMPTY
    parts.append(f"You are carrying a {kinds.NAMES[carried]}." if carries else "You are not carrying anything.")
    return "".join(parts)


def _actions(
    cells: bytes, seen: list[int], named: list, heading: int, carried: int, facing: int | None
) -> tuple[dict[str, bytes], dict[str, str]]:
    actions, refusals = {"turn left": b"\0", "turn right": b"\1"}, {}
    if facing == _FRONT:
        refusals["move forward"] = "There is a barrier in front of you, you can't move forward."
    else:
        actions["move forward"] = _FORWARD
    ways, through = {}, {}
    if named:
        blocked = [cell for cell in seen if not kinds.is_door(cells[cell])]
        doorways = [cell for cell, kind, _ in named if kinds.is_door(kind) and kinds.door_state(kind) == kinds.OPEN]
        routes = Routes(heading, blocked, [cell for cell, _, _ in named], doorways)
        ways = {cell: routes.facing(cell) for cell, _, _ in named}
        through = {cell: routes.into(cell) for cell in doorways}
    if carried == kinds.EMPTY:
        things = [(name, ways[cell]) for cell, kind, name in named if not kinds.is_door(kind)]
        _approach("pickup", things, _PICKUP, actions, refusals)
        refusals["drop"] = "You cannot drop the object, as you are not carrying anything."
    elif cells[_FRONT] > kinds.EMPTY and not kinds.is_door(cells[_FRONT]):
        refusals["drop"] = "You cannot drop the object, as there is already an object in front of you."
    else:
        actions["drop"] = _DROP
    counts: dict[str, int] = {}
    for cell, kind, name in named:
        if kinds.is_door(kind):
            counts[name] = counts.get(name, 0) + 1
            way = through[cell] if kinds.door_state(kind) == kinds.OPEN else ways[cell]
            _door(kind, name, counts, way, carried, actions, refusals)
    _approach("go to", [(name, ways[cell]) for cell, _, name in named], b"", actions, refusals)
    actions[CHECK] = b""
    return actions, refusals


def _approach(
    verb: str, things: list[tuple[str, bytes | None]], then: bytes, actions: dict[str, bytes], refusals: dict[str, str]
) -> None:
    """Numbers only what can be reached; what cannot is refused under the number that comes next."""
    counts: dict[str, int] = {}
    for name, way in things:
        action = f"{verb} {name} {counts.get(name, 0) + 1}"
        if way is None:
            refusals[action] = f"You cannot {action}, as there is no path leading to it."
        else:
            actions[action] = way + then
            counts[name] = counts.get(name, 0) + 1


def _door(
    kind: int,
    name: str,
    counts: dict[str, int],
    way: bytes | None,
    carried: int,
    actions: dict[str, bytes],
    refusals: dict[str, str],
) -> None:
    """``counts``: the doors described up to this one, which a refusal prints for the number, as AgentGym does."""
    through = f"go through {name} {counts[name]}"
    toggle = f"toggle and {through}"
    state = kinds.door_state(kind)
    if state == kinds.OPEN:
        if way is None:
            refusals[through] = f"You cannot {through}, as there is no path leading to it."
        else:
            actions[through] = way
        return
    if state == kinds.CLOSED:
        refusals[through] = f"You cannot {through}, as it is closed. You should toggle it first."
    elif not kinds.KEY <= carried < kinds.BALL:
        refusals[toggle] = f"You cannot {toggle}, as you are not carrying a key."
        return
    elif kinds.color(carried) != kinds.color(kind):
        wrong = "the color of the key you are carrying does not match the color of door."
        refusals[toggle] = f"You cannot {toggle}, as {wrong}"
        return
    if way is None:
        refusals[toggle] = f"You cannot toggle and go through {name} {counts}, as there is no path leading to it."
        return
    actions[toggle] = way + _TOGGLE + _FORWARD
    if not way:
        actions["toggle"] = _TOGGLE
