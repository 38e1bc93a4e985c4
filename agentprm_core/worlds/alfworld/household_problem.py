"""A household as a PDDL problem, with the predicates of the published games and no others.

What things admit (cleaning, heating …), what fits where, the goals and the task sentences are those of the alfworld
package, read when the first household is written.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType

from agentprm_core.worlds.alfworld.games import package_folder
from agentprm_core.worlds.alfworld.household_layout import Receptacle

_FIXED = frozenset({"DeskLamp", "FloorLamp", "HousePlant", "Television"})
"""Things that cannot be picked up."""

_DOMAIN_OBJECT_TYPES = frozenset({"ButterKnife", "Knife"})
"""Object types that the domain's actions name: declared whether the home has one or not."""


@dataclass(frozen=True, slots=True)
class Thing:
    id: str
    """Its PDDL name."""
    kind: str
    """Its type without the suffix ``Type``."""
    place: Receptacle


@dataclass(frozen=True, slots=True)
class Household:
    receptacles: tuple[Receptacle, ...]
    things: tuple[Thing, ...]
    start: str
    """PDDL name of the pose the agent begins in."""


@cache
def package_table(name: str) -> ModuleType:
    """``constants`` or ``goal_library`` of alfworld's ``gen``, run from its file.

    Importing them by name would import alfworld, which sets ALFWORLD_DATA in this process's environment.
    """
    spec = spec_from_file_location(f"alfworld_gen_{name}", package_folder() / "gen" / f"{name}.py")
    assert spec is not None and spec.loader is not None  # so it is for a file that ends in .py
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fits(kind: str, receptacle: str) -> bool:
    """Whether a thing of type ``kind`` may be put into a receptacle of that type."""
    return kind in package_table("constants").VAL_RECEPTACLE_OBJECTS.get(receptacle, ())


def admits(kind: str, affordance: str) -> bool:
    """Whether things of type ``kind`` are ``Cleanable``, ``Heatable``, ``Coolable``, ``Sliceable``, ``Toggleable``."""
    return kind in package_table("constants").VAL_ACTION_OBJECTS[affordance]


def movable(kind: str) -> bool:
    return kind not in _FIXED


def goal_sentence(rng: random.Random, task_type: str, target: str, parent: str) -> str:
    """One of the task type's sentences, filled in; ``parent`` is the lamp of ``look_at_obj_in_light``."""
    template = rng.choice(package_table("goal_library").gdict[task_type]["templates"])
    words = {"obj": target.lower(), "recep": parent.lower(), "toggle": parent.lower(), "mrecep": ""}
    return template.format(**words) + "."


def problem_body(household: Household, task_type: str, target: str, parent: str) -> str:
    """The PDDL problem after its name: domain, objects, initial facts, goal."""
    goal = package_table("goal_library").gdict[task_type]["pddl"]
    filled = goal.replace("#", "-").format(obj=target, recep=parent, toggle=parent)
    objects = "\n".join(_objects(household))
    facts = "\n".join(f"({fact})" for fact in _facts(household))
    return f"(:domain alfred)\n(:objects\n{objects}\n)\n(:init\n{facts}\n)\n{filled}"


def _objects(household: Household) -> list[str]:
    receptacle_types = sorted(package_table("constants").VAL_RECEPTACLE_OBJECTS.keys() - _movable_receptacles())
    object_types = sorted({thing.kind for thing in household.things} | _DOMAIN_OBJECT_TYPES)
    locations = {receptacle.location for receptacle in household.receptacles} | {household.start}
    return [
        "agent1 - agent",
        *(f"{kind}Type - otype" for kind in object_types),
        *(f"{kind}Type - rtype" for kind in receptacle_types),
        *(f"{thing.id} - object" for thing in household.things),
        *(f"{receptacle.id} - receptacle" for receptacle in household.receptacles),
        *(f"{location} - location" for location in sorted(locations)),
    ]


def _facts(household: Household) -> list[str]:
    receptacles, things = household.receptacles, household.things
    kinds = sorted({thing.kind for thing in things})
    receptacle_kinds = sorted({receptacle.kind for receptacle in receptacles})
    facts = [f"receptacleType {r.id} {r.kind}Type" for r in receptacles]
    facts += [f"objectType {t.id} {t.kind}Type" for t in things]
    facts += [f"canContain {r}Type {kind}Type" for r in receptacle_kinds for kind in kinds if fits(kind, r)]
    facts += [f"pickupable {t.id}" for t in things if movable(t.kind)]
    facts += [f"isReceptacleObject {t.id}" for t in things if t.kind in _movable_receptacles()]
    facts += [f"openable {r.id}" for r in receptacles if r.opens]
    facts.append(f"atLocation agent1 {household.start}")
    for affordance in ("Cleanable", "Heatable", "Coolable", "Toggleable", "Sliceable"):
        facts += [f"{affordance.lower()} {t.id}" for t in things if admits(t.kind, affordance)]
    facts += [f"inReceptacle {t.id} {t.place.id}" for t in things]
    facts += [f"receptacleAtLocation {r.id} {r.location}" for r in receptacles]
    facts += [f"objectAtLocation {t.id} {t.place.location}" for t in things]
    return facts


def _movable_receptacles() -> set[str]:
    return package_table("constants").MOVABLE_RECEPTACLES_SET
