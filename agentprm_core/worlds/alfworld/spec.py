"""What the rest of the system knows of ALFWorld: on the fast engine, and on the published one for reference."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from agentprm_core.types import Game
from agentprm_core.worlds.alfworld.kinds import TASK_TYPES
from agentprm_core.worlds.base import Between, OneOf, World, WorldSpec

_PHRASES = (
    "you are in middle of room looking quickly around you you see",
    "your task is to:",
    "you arrive at",
    "you see nothing",
    "nothing happens",
    "you pick up",
    "you move",
    "you open",
    "you close",
    "you heat",
    "you cool",
    "you clean",
    "you turn on",
    "you are carrying:",
    "you are not carrying anything",
    "you are facing",
    "next to it",
    "there's nothing special about",
    "this is",
    "is open",
    "is closed",
    "in it",
    "you see",
    "go to",
)


def _fast() -> World:
    from agentprm_core.worlds.alfworld.engine import FastWorld

    return FastWorld()


def _remembering() -> World:
    from agentprm_core.worlds.alfworld.remembering import RememberingWorld

    return RememberingWorld()


def _remembering_puts() -> World:
    from agentprm_core.worlds.alfworld.remembering import PutsRememberingWorld

    return PutsRememberingWorld()


def _published() -> World:
    from agentprm_core.worlds.alfworld.textworld import TextWorld

    return TextWorld()


def _generate(count: int, seed: int, split: str) -> list[Game]:
    from agentprm_core.worlds.alfworld.households import generate_games

    return generate_games(count, seed, split)


def _generate_mixed(count: int, seed: int, places: Collection[int | str]) -> list[Game]:
    from agentprm_core.worlds.alfworld.households import generate_mixed

    return generate_mixed(count, seed, [int(place) for place in places])


def _load(root, split: str, limit: int | None) -> list[Game]:
    from agentprm_core.worlds.alfworld.games import load_games

    return load_games(root, split, limit)


def _expert(world: World, game: Game, seed: int, knowledge: float):
    from agentprm_core.worlds.alfworld.expert import Expert

    return Expert(seed, knowledge)


def _not_mixed(game: Game) -> bool:
    return game.attributes["source"] != "mixed"


ALFWORLD = WorldSpec(
    name="alfworld",
    make=_fast,
    generate=_generate,
    generate_mixed=_generate_mixed,
    kinds=TASK_TYPES,
    instruction="You act in a household to finish a task.",
    expert=_expert,
    load=_load,
    published_splits={"train": "train", "seen": "valid_seen", "unseen": "valid_unseen"},
    place="floor_plan",
    new_places=frozenset(first + n for first in (0, 200, 300, 400) for n in range(1, 7)),
    phrases=_PHRASES,
    attributes={
        "floor_plan": Between(1, 430, "AI2-THOR's floor plans"),
        "source": OneOf(("generated", "mixed", "published"), "where the game is from"),
    },
)
"""The exact fast engine."""

REMEMBERING = replace(
    ALFWORLD, name="alfworld-remembering", texts_of="alfworld", measured_in="alfworld", make=_remembering
)
"""The fast engine; places that were looked into for nothing are not offered again, on the same games."""

TRAINING = replace(REMEMBERING, name="alfworld-training", make=_remembering_puts, mixed=0.5, shown=_not_mixed)
"""The same; a place that something was put into is not offered again either. Half of the generated training games are
in rooms that are put together from several floor plans, and none of these is demonstrated."""

UNLISTED = replace(
    ALFWORLD,
    name="alfworld-unlisted",
    texts_of="alfworld",
    lists_commands=False,
    instruction=(
        "You act in a household to finish a task. Commands: go to, open, close, examine, use, take THING from PLACE, "
        "move THING to PLACE, heat, cool or clean THING with PLACE, look, inventory."
    ),
)
"""The fast engine; a chat message does not list the admissible commands, so episodes are a third as long in tokens."""

TEXTWORLD = replace(ALFWORLD, name="alfworld-textworld", texts_of="alfworld", make=_published)
"""The published engine, a thousand times slower, on the same games."""
