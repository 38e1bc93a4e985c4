"""What the rest of the system knows of GSM8K."""

from __future__ import annotations

import json

from agentprm_core.types import Game
from agentprm_core.worlds.base import NoGenerator, NothingLeft, Observation, OneOf, World, WorldSpec
from agentprm_core.worlds.gsm8k.answers import normalise
from agentprm_core.worlds.gsm8k.games import MOST_STEPS, kind, load_games
from agentprm_core.worlds.reasoning import MARK, Reasoning


def _make() -> World:
    return Reasoning(normalise, "a number")


def _generate(count: int, seed: int, split: str) -> list[Game]:
    raise NoGenerator(
        "gsm8k has no generator: set games.published to the folder or archive of "
        "GSM8K (GSM8K_DATA, or ../shared/data/later/gsm8k.tar.xz)"
    )


class SolutionExpert:
    """Says the data's own solution, whatever has been said before."""

    def __init__(self, game: Game) -> None:
        said = json.loads(game.payload)
        self._left = iter([*said["solution"], f"{MARK} {said['answer']}"])

    def act(self, seen: Observation, done: str | None = None) -> str:
        line = next(self._left, None)
        if line is None:
            raise NothingLeft("the solution has been said")
        return line


def _expert(world: World, game: Game, seed: int, knowledge: float) -> SolutionExpert:
    return SolutionExpert(game)


GSM8K = WorldSpec(
    name="gsm8k",
    make=_make,
    generate=_generate,
    kinds=tuple(kind(steps) for steps in range(1, MOST_STEPS + 1)),
    instruction="You solve a word problem. Each of your commands is one line of your reasoning.",
    expert=_expert,
    load=load_games,
    published_splits={"train": "train", "seen": "held_out", "unseen": "test"},
    attributes={"source": OneOf(("published",), "where the game is from")},
    max_turns=10,
    expert_turns=20,
)
"""For policies that write text: a language model from Hugging Face or behind a server."""
