"""A household small enough to read, with everything in it that published games do to an engine.

Two cabinets share one spot; the key chain lies in two receptacles at once; the plate is said to be somewhere else than
where it lies; a mug holds a spoon; one apple starts cold; the window is in no receptacle; the tray fits nowhere.
"""

from __future__ import annotations

from agentprm_core.types import Game

RECEPTACLES = {
    "Cabinet_bar__plus_00_dot_10": ("CabinetType", "loc_bar_1_bar_1"),
    "Cabinet_bar__plus_00_dot_20": ("CabinetType", "loc_bar_1_bar_1"),
    "CounterTop_bar__plus_01_dot_00": ("CounterTopType", "loc_bar_2_bar_1"),
    "Sink_bar__plus_02_dot_00_bar_SinkBasin": ("SinkBasinType", "loc_bar_3_bar_1"),
    "Microwave_bar__plus_03_dot_00": ("MicrowaveType", "loc_bar_4_bar_1"),
    "Fridge_bar__plus_04_dot_00": ("FridgeType", "loc_bar_5_bar_1"),
}
OPENABLE = ("CabinetType", "MicrowaveType", "FridgeType")

OBJECTS = {
    "Apple_bar__plus_00_dot_11": ("AppleType", ["Cabinet_bar__plus_00_dot_10"]),
    "Apple_bar__plus_04_dot_01": ("AppleType", ["Fridge_bar__plus_04_dot_00"]),
    "Knife_bar__plus_01_dot_01": ("KnifeType", ["CounterTop_bar__plus_01_dot_00"]),
    "Mug_bar__plus_01_dot_02": ("MugType", ["CounterTop_bar__plus_01_dot_00"]),
    "Spoon_bar__plus_01_dot_03": ("SpoonType", ["CounterTop_bar__plus_01_dot_00"]),
    "Plate_bar__plus_01_dot_04": ("PlateType", ["CounterTop_bar__plus_01_dot_00"]),
    "KeyChain_bar__plus_01_dot_05": ("KeyChainType", ["CounterTop_bar__plus_01_dot_00", "Cabinet_bar__plus_00_dot_20"]),
    "DeskLamp_bar__plus_01_dot_06": ("DeskLampType", ["CounterTop_bar__plus_01_dot_00"]),
    "Tray_bar__plus_01_dot_07": ("TrayType", ["CounterTop_bar__plus_01_dot_00"]),
    "Window_bar__plus_09_dot_00": ("WindowType", []),
}
PICKUPABLE = ("AppleType", "KnifeType", "MugType", "SpoonType", "PlateType", "KeyChainType", "TrayType")
CLEANABLE = ("AppleType", "KnifeType", "MugType", "SpoonType", "PlateType")
HEATABLE = ("AppleType", "MugType", "PlateType")

SIMPLE_GOAL = """(exists (?r - receptacle) (exists (?o - object)
    (and (inReceptacle ?o ?r) (objectType ?o MugType) (receptacleType ?r CabinetType))))"""


def tiny_problem(goal: str = SIMPLE_GOAL, more_facts: str = "", more_objects: str = "") -> str:
    """The household's PDDL problem with ``goal``."""
    types = sorted({kind for kind, _ in OBJECTS.values()})
    rtypes = sorted({kind for kind, _ in RECEPTACLES.values()})
    locations = [*sorted({place for _, place in RECEPTACLES.values()}), "loc_bar_0_bar_0"]
    lines = ["(define (problem tiny) (:domain alfred) (:objects agent1 - agent"]
    lines += [f"{name} - object" for name in (*OBJECTS, "Curtains")] + [f"{name} - otype" for name in types]
    lines += [f"{name} - receptacle" for name in RECEPTACLES] + [f"{name} - rtype" for name in rtypes]
    lines += [f"{name} - location" for name in locations] + [more_objects, ")"]
    lines += ["(:init (atLocation agent1 loc_bar_0_bar_0)"]
    lines += _receptacle_facts() + _object_facts()
    lines += [f"(canContain {r} {o})" for r in rtypes for o in types if o not in ("TrayType", "WindowType")]
    lines += [more_facts, ")", f"(:goal {goal}))"]
    return "\n".join(lines)


def _receptacle_facts() -> list[str]:
    facts = []
    for name, (kind, place) in RECEPTACLES.items():
        facts += [f"(receptacleType {name} {kind})", f"(receptacleAtLocation {name} {place})"]
        facts += [f"(openable {name})"] if kind in OPENABLE else []
    return facts


def _object_facts() -> list[str]:
    facts = []
    for name, (kind, places) in OBJECTS.items():
        facts.append(f"(objectType {name} {kind})")
        facts += [f"(inReceptacle {name} {place})" for place in places]
        facts += [f"(objectAtLocation {name} {RECEPTACLES[place][1]})" for place in places[:1] if kind != "PlateType"]
        facts += [f"(pickupable {name})"] if kind in PICKUPABLE else []
        facts += [f"(cleanable {name})"] if kind in CLEANABLE else []
        facts += [f"(heatable {name}) (coolable {name})"] if kind in HEATABLE else []
    return [
        *facts,
        "(objectAtLocation Plate_bar__plus_01_dot_04 loc_bar_4_bar_1)",
        "(objectAtLocation Window_bar__plus_09_dot_00 loc_bar_0_bar_0)",
        "(sliceable Apple_bar__plus_00_dot_11) (sliceable Apple_bar__plus_04_dot_01)",
        "(isCool Apple_bar__plus_04_dot_01) (toggleable DeskLamp_bar__plus_01_dot_06)",
        "(isReceptacleObject Mug_bar__plus_01_dot_02) (isReceptacleObject Plate_bar__plus_01_dot_04)",
        "(inReceptacleObject Spoon_bar__plus_01_dot_03 Mug_bar__plus_01_dot_02)",
    ]


def tiny_game(goal: str = SIMPLE_GOAL, **more: str) -> Game:
    """The household as a game."""
    return Game(
        id="train/pick_and_place_simple-Mug-None-Cabinet-1/tiny",
        world="alfworld",
        split="train",
        kind="pick_and_place_simple",
        goal="put a mug in cabinet.",
        payload=tiny_problem(goal, **more),
        attributes={"floor_plan": 1, "source": "generated"},
    )
