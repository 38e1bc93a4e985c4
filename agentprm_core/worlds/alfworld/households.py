"""Generated households: games like ALFWorld's, drawn from what the alfworld package ships and nothing else on disk.

A home is a floor plan of the package with one to three things of each kind that its scene has, lying where they lie
in published homes (:mod:`agentprm_core.worlds.alfworld.priors`). A game is a home and a task: the six types in the mix
of the published training games, their goals and sentences from the package's goal library. What the expert cannot
solve is not a game.

``mixed`` games have floor plans that are put together from several: whoever learns in them cannot know a room by heart.

Splits are disjoint by construction. ``unseen`` has floor plans of its own. ``train`` and ``seen`` share floor plans,
and each household belongs to one of them by the digest of its PDDL, whatever seed it was drawn with.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import cache, lru_cache

from agentprm_core.errors import DataError
from agentprm_core.types import Game
from agentprm_core.worlds.alfworld.engine import FastWorld
from agentprm_core.worlds.alfworld.expert import solves
from agentprm_core.worlds.alfworld.household_layout import (
    ROOMS,
    FloorPlan,
    Receptacle,
    floor_plan,
    mangle,
    mixed_floor_plan,
)
from agentprm_core.worlds.alfworld.household_problem import (
    Household,
    Thing,
    admits,
    fits,
    goal_sentence,
    movable,
    problem_body,
)
from agentprm_core.worlds.alfworld.priors import WHERE
from agentprm_core.worlds.base import World

SPLITS = ("train", "seen", "unseen")

TASK_MIX = {
    ("pick_and_place_simple", "kitchen"): 79,
    ("pick_and_place_simple", "living room"): 210,
    ("pick_and_place_simple", "bedroom"): 237,
    ("pick_and_place_simple", "bathroom"): 264,
    ("look_at_obj_in_light", "living room"): 51,
    ("look_at_obj_in_light", "bedroom"): 257,
    ("pick_clean_then_place_in_recep", "kitchen"): 501,
    ("pick_clean_then_place_in_recep", "bathroom"): 150,
    ("pick_heat_then_place_in_recep", "kitchen"): 459,
    ("pick_cool_then_place_in_recep", "kitchen"): 533,
    ("pick_two_obj_and_place", "kitchen"): 124,
    ("pick_two_obj_and_place", "living room"): 216,
    ("pick_two_obj_and_place", "bedroom"): 240,
    ("pick_two_obj_and_place", "bathroom"): 233,
}
"""How many of the published training games have each task type in each room."""

EXPERT_TURNS = 50
"""Actions that the expert may take before a household counts as unsolvable (the longer of the papers' two limits)."""

_ATTEMPTS = 1000
_PLANS_KNOWN = 1024
_HELD_OUT = 8
"""One household in so many belongs to ``seen``."""

_ONE_TO_THREE = (1, 2, 3), (36, 34, 30)
_MOSTLY_ONE = (1, 2, 3), (65, 28, 7)
_LARGE = frozenset({"Box", "Bread", "HandTowel", "Laptop", "Pan", "Pillow", "Pot", "Towel"})
_SINGLE = frozenset({"DeskLamp", "HousePlant", "PaperTowelRoll", "TeddyBear", "Television"})
_TARGETS = (1, 2, 3, 4), (38, 32, 20, 10)
_TWO_TARGETS = (2, 3, 4), (46, 34, 20)
"""How many things of a kind a home has, and how often, as in the published training games: small kinds, large kinds,
the kind that the task is about, and that of a task for two."""

_NEVER_HOME = frozenset({"BathtubBasin", "HandTowelHolder", "LaundryHamper", "SinkBasin", "TVStand", "TowelHolder"})
"""Receptacle types that no published task brings anything to (one bathtub apart)."""

_VERB = {
    "pick_clean_then_place_in_recep": ("Cleanable", "SinkBasin"),
    "pick_heat_then_place_in_recep": ("Heatable", "Microwave"),
    "pick_cool_then_place_in_recep": ("Coolable", "Fridge"),
}
"""Task type → what its object must admit, and the appliance."""


@dataclass(frozen=True, slots=True)
class Task:
    type: str
    target: str
    """Object type, ``Mug``."""
    parent: str
    """Receptacle type it goes to; for ``look_at_obj_in_light`` the lamp's object type."""


def generate_games(count: int, seed: int, split: str) -> list[Game]:
    """``count`` solvable games of ``split`` (one of :data:`SPLITS`), sorted by id; the same for the same arguments.

    Each game depends on (split, seed, its index) alone, so the games of a smaller count are among those of a larger.
    The fast engine plays the check that the expert solves them. Raises DataError for another split.
    """
    return sorted(generate_range(range(count), seed, split), key=lambda game: game.id)


def generate_range(indices: Iterable[int], seed: int, split: str) -> list[Game]:
    """The games with these indices, in their order: a share of :func:`generate_games` for one of several processes."""
    if split not in SPLITS:
        raise DataError(f"alfworld: split {split!r} is not one of {', '.join(SPLITS)}")
    world = FastWorld()
    return [_generate(index, seed, split, world) for index in indices]


def generate_mixed(count: int, seed: int, places: Collection[int]) -> list[Game]:
    """``count`` solvable games of train, sorted by id, in floor plans that are mixed (:func:`mixed_floor_plan`).

    ``places`` are the numbers of the floor plans that they are made of. The attribute ``floor_plan`` of a game is one
    of these. Raises ValueError where no room of ``places`` can have a task.
    """
    plans = {room: [floor_plan(n) for n in sorted(places) if base < n <= base + 30] for room, base in ROOMS.items()}
    shares = {place: share for place, share in TASK_MIX.items() if plans[place[1]]}
    if not shares:
        raise ValueError(f"no mixed household without floor plans: {sorted(places)}")
    world = FastWorld()
    games = [_generate_mixed(index, seed, plans, shares, world) for index in range(count)]
    return sorted(games, key=lambda game: game.id)


def _generate_mixed(
    index: int, seed: int, plans: dict[str, list[FloorPlan]], shares: dict[tuple[str, str], int], world: World
) -> Game:
    task_type, room = random.Random(f"mixed/{seed}/{index}").choices(list(shares), list(shares.values()))[0]
    others = [plan for other, there in plans.items() if other != room for plan in there]
    for attempt in range(_ATTEMPTS):
        rng = random.Random(f"mixed/{seed}/{index}/{attempt}")
        plan = mixed_floor_plan(rng, plans[room], others)
        game = _draw(rng, "train", task_type, plan) if _tasks(plan, task_type) else None
        if game is not None and solves(world, game, EXPERT_TURNS):
            return replace(game, attributes={**game.attributes, "source": "mixed"})
    raise RuntimeError(f"the expert solved none of {_ATTEMPTS} mixed households drawn for game {index}")


def floor_plans(split: str, room: str) -> list[int]:
    """Floor plans of a room: the first six are ``unseen``'s, the other twenty-four ``train``'s and ``seen``'s."""
    first = ROOMS[room] + 1
    return list(range(first, first + 6)) if split == "unseen" else list(range(first + 6, first + 30))


def _generate(index: int, seed: int, split: str, world: World) -> Game:
    places = _places(split)
    shares = [TASK_MIX[place] for place in places]
    task_type, room = random.Random(f"{split}/{seed}/{index}").choices(list(places), shares)[0]
    for attempt in range(_ATTEMPTS):
        rng = random.Random(f"{split}/{seed}/{index}/{attempt}")
        game = _draw(rng, split, task_type, rng.choice(places[task_type, room]))
        if game is not None and solves(world, game, EXPERT_TURNS):
            return game
    raise RuntimeError(f"the expert solved none of {_ATTEMPTS} households drawn for game {index} of {split}")


@cache
def _places(split: str) -> dict[tuple[str, str], list[FloorPlan]]:
    """The task types and rooms of :data:`TASK_MIX` → the split's floor plans that can have such a task."""
    places = {}
    for task_type, room in TASK_MIX:
        plans = [floor_plan(number) for number in floor_plans(split, room)]
        hosts = [plan for plan in plans if _tasks(plan, task_type)]
        if hosts:
            places[task_type, room] = hosts
    return places


def _draw(rng: random.Random, split: str, task_type: str, plan: FloorPlan) -> Game | None:
    """One household with a task, solvable or not; None where things have no place or it is another split's."""
    tasks = _tasks(plan, task_type)
    parent = rng.choice(list(tasks))
    task = Task(task_type, rng.choice(tasks[parent]), parent)
    household = _furnish(rng, plan, task)
    if household is None:
        return None
    body = problem_body(household, task.type, task.target, task.parent)
    digest = hashlib.blake2b(body.encode(), digest_size=6).digest()
    if split != "unseen" and (digest[-1] % _HELD_OUT == 0) != (split == "seen"):
        return None
    trial = f"trial_{digest.hex()}"
    return Game(
        id=f"{split}/{task.type}-{task.target}-None-{task.parent}-{plan.number}/{trial}",
        world="alfworld",
        split=split,
        kind=task.type,
        goal=goal_sentence(rng, task.type, task.target, task.parent),
        payload=f"(define (problem plan_{trial})\n{body}",
        attributes={"floor_plan": plan.number, "source": "generated"},
    )


@lru_cache(_PLANS_KNOWN)
def _tasks(plan: FloorPlan, task_type: str) -> dict[str, list[str]]:
    """The tasks that a home can have: receptacle type to bring to (or the lamp) → object types."""
    targets = [kind for kind in sorted(plan.kinds & WHERE.keys()) if movable(kind) and kind != "Towel"]
    if task_type == "look_at_obj_in_light":
        return {"DeskLamp": targets} if "DeskLamp" in plan.kinds else {}
    kinds = plan.receptacle_kinds()
    homes = [kind for kind in kinds if kind not in _NEVER_HOME]
    if task_type in _VERB:
        affordance, appliance = _VERB[task_type]
        targets = [kind for kind in targets if admits(kind, affordance)] if appliance in kinds else []
        homes = [kind for kind in homes if kind != appliance]
    tasks = {home: [kind for kind in targets if fits(kind, home)] for home in homes}
    return {home: fitting for home, fitting in tasks.items() if fitting}


def _furnish(rng: random.Random, plan: FloorPlan, task: Task) -> Household | None:
    """Put things into the home; None where the target has no place but those that it is to be brought to."""
    names: set[str] = set()
    things: list[Thing] = []
    for kind in sorted(plan.kinds & WHERE.keys()):
        rates = [WHERE[kind].get(receptacle.kind, 0.0) for receptacle in plan.receptacles]
        if kind == task.target and task.type in ("pick_and_place_simple", "pick_two_obj_and_place"):
            rates = [0.0 if r.kind == task.parent else rate for r, rate in zip(plan.receptacles, rates)]
        if not any(rates):
            if kind in (task.target, task.parent):
                return None
            continue
        for place in rng.choices(plan.receptacles, rates, k=_how_many(rng, kind, task)):
            things.append(_thing(rng, kind, place, names))
    return Household(plan.receptacles, tuple(things), rng.choice(plan.starts))


def _how_many(rng: random.Random, kind: str, task: Task) -> int:
    if kind in _SINGLE:
        return 1
    if kind == task.target:
        numbers, weights = _TWO_TARGETS if task.type == "pick_two_obj_and_place" else _TARGETS
    else:
        numbers, weights = _MOSTLY_ONE if kind in _LARGE else _ONE_TO_THREE
    return rng.choices(numbers, weights)[0]


def _thing(rng: random.Random, kind: str, place: Receptacle, names: set[str]) -> Thing:
    """A thing at a point of ``place`` where no other of its kind is, so that its PDDL name is its own."""
    x, y, z = place.position
    while True:
        name = mangle(kind, (x + rng.randrange(-40, 41) / 100, y + 0.05, z + rng.randrange(-40, 41) / 100))
        if name not in names:
            names.add(name)
            return Thing(name, kind, place)
