"""What the rest of the system knows of TextCraft."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

from agentprm_core.types import Game
from agentprm_core.worlds.base import Between, OneOf, World, WorldSpec

if TYPE_CHECKING:
    from agentprm_core.worlds.textcraft.engine import TextCraft

_PHRASES = (
    "crafting commands:",
    "goal: craft",
    "crafted",
    "could not find enough items to craft",
    "could not find valid recipe for itemtagwithcount(item_tag=itemtag(tag=none item_id='minecraft:",
    "could not find valid recipe for itemtagwithcount(item_tag=itemtag(tag='minecraft:",
    "could not find",
    "could not execute",
    "wrong item format:",
    "inventory: [",
    "inventory: you are not carrying anything",
    "] (",
    ") [",
    "minecraft:",
    "_",
)


def _make() -> World:
    from agentprm_core.worlds.textcraft.engine import TextCraft

    return TextCraft()


def _generate(count: int, seed: int, split: str) -> list[Game]:
    from agentprm_core.worlds.textcraft.generate import generate_games

    return generate_games(count, seed, split)


def _load(root: Path, split: str, limit: int | None) -> list[Game]:
    from agentprm_core.worlds.textcraft.published import load_published

    return load_published(Path(root), split, limit)


def _expert(world: World, game: Game, seed: int, knowledge: float):
    from agentprm_core.worlds.textcraft.expert import Expert

    return Expert(cast("TextCraft", world), game, seed, knowledge)


def _plan(world: World, game: Game, seed: int, knowledge: float):
    from agentprm_core.worlds.textcraft.planner import ByPlan

    return ByPlan(cast("TextCraft", world), game)


TEXTCRAFT = WorldSpec(
    name="textcraft",
    make=_make,
    generate=_generate,
    kinds=("depth_1", "depth_2", "depth_3", "depth_4"),
    instruction=(
        "You craft an item with the crafting commands that you are given: get the ingredients that can be got "
        "(get 2 oak log), craft the others by a command as it is given; inventory says what you hold."
    ),
    lists_commands=False,
    expert=_expert,
    other_experts={"plan": _plan},
    load=_load,
    published_splits={"train": "agentgym-train", "seen": "agentgym-test", "unseen": "adapt"},
    phrases=_PHRASES,
    entity=r"[a-z]+|\d+|[^\sa-z\d]",
    attributes={
        "depth": Between(1, 4, "crafting steps one after the other, as in the published games"),
        "recipe_count": Between(1, 72, "recipes in sight, at most as many as in the published games"),
        "source": OneOf(("generated", "published"), "where the game is from"),
    },
    refusals_tell=True,
    max_turns=20,
    expert_turns=20,
)
