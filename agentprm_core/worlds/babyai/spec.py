"""What the rest of the system knows of BabyAI."""

from __future__ import annotations

from math import nextafter
from typing import cast

from agentprm_core.types import Game
from agentprm_core.worlds.babyai.games import FIRST_SEED, LAST_SEED, generate_games
from agentprm_core.worlds.babyai.kinds import COLORS, DOOR_STATES
from agentprm_core.worlds.babyai.levels import KINDS, LEVELS
from agentprm_core.worlds.babyai.reader import Reader
from agentprm_core.worlds.babyai.world import DONE_ABOVE, BabyAI
from agentprm_core.worlds.base import Between, World, WorldSpec

_PHRASES = (
    *(f"{steps} steps in front of you" for steps in range(7)),
    *(f"{steps} steps to your {side}" for steps in range(1, 4) for side in ("left", "right")),
    *(f"right in front of you {steps} steps away" for steps in range(1, 7)),
    *(f"you are facing {barrier} {steps} steps away" for barrier in ("wall", "box") for steps in range(1, 7)),
    "in front of you in this room you can see several objects:",
    "you cannot see any objects within sight.room has walls around you",
    "room has walls around you",
    "there is",
    "your goal:",
    "you are carrying",
    "you are not carrying anything",
    "task is completed",
    "turn left",
    "turn right",
    "move forward",
    "go to",
    "go through",
    "toggle go through",
    "pick up",
    "next to",
    "in front of you",
    "behind you",
    "on your left",
    "on your right",
    "check available actions",
    "you can take following actions:",
    "you cannot",
    "no change in state",
    "action is not recognized please check valid actions",
    "there is barrier in front of you you can't move forward",
    "as there is no path leading to it",
    "as there is already object in front of you",
    "as it is closed you should toggle it first",
    "as you are not carrying key",
    "as you are not carrying anything",
    "as color of key you are carrying does not match color of door",
)


_NAME = f"(?:{'|'.join(COLORS)}) (?:(?:{'|'.join(DOOR_STATES)}) )?(?:key|ball|box|door)(?: \\d+)?"
"""``red ball``, as the goal and the hand have it, and ``red ball 1``."""


def _world() -> World:
    return BabyAI()


def _reader(world: World, game: Game, seed: int, knowledge: float):
    """Knows what is told. Like the bot it draws nothing, and knows no places beforehand."""
    return Reader(cast(BabyAI, world))


def _bot(world: World, game: Game, seed: int, knowledge: float):
    """Knows the mission in minigrid's words, and where it has been."""
    from agentprm_core.worlds.babyai.expert import Expert

    return Expert(cast(BabyAI, world))


BABYAI = WorldSpec(
    name="babyai",
    make=_world,
    generate=generate_games,
    kinds=tuple(KINDS),
    instruction="You act in rooms of coloured keys, balls, boxes and doors to finish a task.",
    expert=_reader,
    other_experts={"bot": _bot},
    phrases=_PHRASES,
    entity=_NAME,
    alike=_NAME,
    rewritten={r", and (?=go to|open|pick up|put )": " then "},
    attributes={
        "level": Between(1, len(LEVELS), "AgentGym's levels"),
        "seed": Between(FIRST_SEED, LAST_SEED, "what minigrid draws the maze from; lower ones are the published games"),
    },
    success=nextafter(DONE_ABOVE, 1.0),
    max_turns=20,
    expert_turns=25,
)
"""Success is what ends the episode: a reward above 0.5. A mission that is done later than that is told as completed,
earns its small reward, and play goes on, in AgentGym as here. AgentGym's client sums such rewards up (``score``), once
for every refused action too; here the reward of an episode is that of its last action."""
