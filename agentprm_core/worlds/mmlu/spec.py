"""What the rest of the system knows of MMLU."""

from __future__ import annotations

from agentprm_core.types import Game
from agentprm_core.worlds.base import NoGenerator, OneOf, World, WorldSpec
from agentprm_core.worlds.mmlu.games import load_games, normalise
from agentprm_core.worlds.mmlu.subjects import GROUP_OF, GROUPS
from agentprm_core.worlds.reasoning import Reasoning


def _make() -> World:
    return Reasoning(normalise, "a letter from A to D")


def _generate(count: int, seed: int, split: str) -> list[Game]:
    raise NoGenerator(
        "mmlu has no generator: set games.published to the folder or archive of "
        "MMLU (MMLU_DATA, or ../shared/data/later/mmlu.tar.xz)"
    )


MMLU = WorldSpec(
    name="mmlu",
    make=_make,
    generate=_generate,
    kinds=tuple(GROUPS),
    instruction="You answer a question. Each of your commands is one line of your reasoning.",
    load=load_games,
    published_splits={"train": "dev", "unseen": "test"},
    attributes={"subject": OneOf(tuple(sorted(GROUP_OF)), "the subjects of MMLU")},
    max_turns=10,
)
"""For policies that write text. The data has no solutions, so nobody can demonstrate."""
