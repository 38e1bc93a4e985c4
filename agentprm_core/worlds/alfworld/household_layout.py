"""Floor plans as the alfworld package ships them: which receptacles stand where, and what kinds of things a home has.

``gen/layouts`` holds 120 of them in three files each: the poses from which receptacles are reached, the free points
of the floor, and the object types of the scene. A few receptacle types have no pose there; they are put at free
points, in the number that the published games mostly have.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from agentprm_core.worlds.alfworld.games import package_folder
from agentprm_core.worlds.alfworld.priors import OPENABLE

ROOMS = {"kitchen": 0, "living room": 200, "bedroom": 300, "bathroom": 400}
"""Room → the number before its first floor plan; each has thirty."""

_GRID = 0.25
"""Metres between neighbouring points of the floor (AI2-THOR's step)."""

_NO_POSE = {
    "Cabinet": 1,
    "CoffeeMachine": 1,
    "Drawer": 3,
    "GarbageCan": 1,
    "HandTowelHolder": 1,
    "LaundryHamper": 1,
    "Ottoman": 1,
    "Safe": 1,
    "Shelf": 1,
    "StoveBurner": 4,
    "Toaster": 1,
    "Toilet": 1,
    "ToiletPaperHanger": 1,
    "TowelHolder": 1,
}
"""Receptacle types that a scene may have without a pose in its layout → how many the published games mostly have."""

_BESIDES = 0.2
"""Cabinets and drawers that published games have besides each one with a pose."""

_FROM_ELSEWHERE = 0.25
"""Chance that a mixed floor plan has one kind of receptacle that the other rooms have."""


@dataclass(frozen=True, slots=True)
class Receptacle:
    id: str
    """Its PDDL name, as in published games: ``Cabinet_bar__plus_00_dot_68_bar__…``."""
    kind: str
    """Its type without the suffix ``Type``: ``Cabinet``."""
    location: str
    """PDDL name of the pose it is reached from; several receptacles may share one."""
    opens: bool
    """Whether it starts closed and can be opened. Drawers and cabinets without a pose in the layout cannot."""
    position: tuple[float, float, float]
    """Metres."""


@dataclass(frozen=True, slots=True)
class FloorPlan:
    number: int
    room: str
    receptacles: tuple[Receptacle, ...]
    kinds: frozenset[str]
    """Object types that the scene has (receptacles among them)."""
    starts: tuple[str, ...]
    """PDDL names of poses where no receptacle is reached."""

    def receptacle_kinds(self) -> list[str]:
        return sorted({receptacle.kind for receptacle in self.receptacles})


@cache
def floor_plan(number: int) -> FloorPlan:
    """Floor plan ``number`` (1–30, 201–230, 301–330, 401–430). The same whenever and wherever it is read."""
    stem = str(package_folder() / "gen" / "layouts" / f"FloorPlan{number}")
    with open(f"{stem}-openable.json") as file:
        poses = json.load(file)
    with open(f"{stem}-objects.json") as file:
        kinds = frozenset(json.load(file))
    receptacles = [_posed(key, pose) for key, pose in sorted(poses.items())]
    taken = {receptacle.location for receptacle in receptacles}
    free = [pose for pose in _floor_poses(np.load(f"{stem}-layout.npy")) if mangle_pose(*pose) not in taken]
    rng = random.Random(f"floor plan {number}")
    rng.shuffle(free)
    have = Counter(receptacle.kind for receptacle in receptacles)
    for kind in sorted(kinds & _NO_POSE.keys()):
        if kind not in have:
            receptacles += _unposed(kind, _NO_POSE[kind], free, rng)
        elif kind in ("Cabinet", "Drawer"):
            receptacles += _unposed(kind, round(_BESIDES * have[kind]), free, rng)
    starts = tuple(mangle_pose(*pose) for pose in free[:8])
    room = next(room for room, base in ROOMS.items() if base < number <= base + 30)
    return FloorPlan(number, room, tuple(receptacles), kinds, starts)


def mixed_floor_plan(rng: random.Random, plans: Sequence[FloorPlan], others: Sequence[FloorPlan] = ()) -> FloorPlan:
    """A floor plan that is put together from ``plans`` of one room, with the number of one of them.

    Each kind of receptacle, and each kind of thing, is taken from a plan of its own, in the number that it has there,
    which may be none. So the kinds come together as in no plan. Sometimes a kind of receptacle comes from ``others``,
    plans of other rooms. Receptacles of one kind share the poses that they share in their plan; those of two kinds
    share none. Raises ValueError without plans.
    """
    if not plans:
        raise ValueError("a mixed floor plan needs at least one to take from")
    taken = [
        receptacle
        for kind in _kinds_of(plan.receptacle_kinds() for plan in plans)
        for receptacle in rng.choice(plans).receptacles
        if receptacle.kind == kind
    ]
    if others and rng.random() < _FROM_ELSEWHERE:
        plan = rng.choice(others)
        kind = rng.choice(plan.receptacle_kinds())
        if kind not in {receptacle.kind for receptacle in taken}:
            taken += [receptacle for receptacle in plan.receptacles if receptacle.kind == kind]
    poses: dict[tuple[str, str], str] = {}
    for receptacle in taken:
        poses.setdefault((receptacle.kind, receptacle.location), mangle_pose(_GRID * (len(poses) + 1), 0.0, 0, 45))
    moved = (replace(receptacle, location=poses[receptacle.kind, receptacle.location]) for receptacle in taken)
    kinds = frozenset(kind for kind in _kinds_of(plan.kinds for plan in plans) if kind in rng.choice(plans).kinds)
    base = rng.choice(plans)
    return FloorPlan(base.number, base.room, tuple(moved), kinds, (mangle_pose(0.0, 0.0, 0, 45),))


def _kinds_of(of_each: Iterable[Iterable[str]]) -> list[str]:
    """All kinds, each once, in an order that does not hang on how sets are laid out."""
    return sorted({kind for kinds in of_each for kind in kinds})


def mangle(kind: str, position: tuple[float, float, float]) -> str:
    """AI2-THOR's object id as a PDDL name: ``Mug|+02.04|+00.89|-03.04`` → ``Mug_bar__plus_02_dot_04_bar_…``."""
    return _mangle_id("|".join([kind, *(f"{v:+06.2f}" for v in position)]))


def mangle_pose(x: float, z: float, turn: int, tilt: int) -> str:
    """Where the agent stands and looks (metres, degrees) as a PDDL name: grid steps, quarter turns, degrees."""
    numbers = (round(x / _GRID), round(z / _GRID), turn // 90 % 4, tilt)
    return "loc" + "".join(f"_bar_{'_minus_' if n < 0 else ''}{abs(n)}" for n in numbers)


def _mangle_id(text: str) -> str:
    for sign, word in (("|", "_bar_"), ("+", "_plus_"), ("-", "_minus_"), (".", "_dot_")):
        text = text.replace(sign, word)
    return text


def _posed(key: str, pose: list[float]) -> Receptacle:
    kind, x, y, z, *part = key.split("|")
    location = mangle_pose(pose[0], pose[1], int(pose[2]), int(pose[3]))
    kind = part[0] if part else kind
    return Receptacle(_mangle_id(key), kind, location, kind in OPENABLE, (float(x), float(y), float(z)))


def _floor_poses(points: np.ndarray) -> list[tuple[float, float, int, int]]:
    """All poses looking ahead and down from the free points [n, 2] of the floor."""
    return [(float(x), float(z), turn, 45) for x, z in points for turn in (0, 90, 180, 270)]


def _unposed(kind: str, count: int, free: list, rng: random.Random) -> list[Receptacle]:
    """``count`` receptacles at poses taken from ``free``; stove burners share theirs in pairs, as they mostly do."""
    placed = []
    sharing = 2 if kind == "StoveBurner" else 1
    poses = [free.pop() for _ in range(0, count, sharing)]
    for index in range(count):
        pose = poses[index // sharing]
        position = (pose[0] + 0.1 * (index % 2), rng.randrange(10, 140) / 100, pose[1] + 0.5)
        placed.append(Receptacle(mangle(kind, position), kind, mangle_pose(*pose), False, position))
    return placed
