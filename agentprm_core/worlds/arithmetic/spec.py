"""What the rest of the system knows of the arithmetic world."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from agentprm_core.types import Game
from agentprm_core.worlds.arithmetic.engine import Arithmetic, problem
from agentprm_core.worlds.arithmetic.problems import DISTRACTORS, STEPS, generate_games
from agentprm_core.worlds.arithmetic.reading import distracted_chain
from agentprm_core.worlds.base import Between, NothingLeft, Observation, World, WorldSpec

_PHRASES = (
    "compute",
    "answer",
    "that makes",
    "makes that",
    "makes",
    "your task is to: say how many",
    "has",
    "then has",
    "buys",
    "finds",
    "is given",
    "given",
    "loses",
    "sells",
    "gives away",
    "away",
    "that",
    "times as many",
    "splits",
    "into",
    "equal parts one of which is kept",
    "nothing happens",
)
"""Every word that a number follows is one: the number is then a token of its own, the same one in the text, in the
commands and in the results, so that a small policy can copy it."""


class ChainExpert:
    """Does a chain of commands; gives up where a mistake has used up a number of it."""

    def __init__(self, chain: Sequence[str]) -> None:
        self._chain = chain
        self._at = 0
        self._said: str | None = None

    def act(self, seen: Observation, done: str | None = None) -> str:
        if self._said is not None and done in (None, self._said):
            self._at += 1
        self._said = self._chain[self._at]
        if self._said not in seen.admissible:
            raise NothingLeft(f"{self._said!r} cannot be done any more")
        return self._said


def _expert(world: World, game: Game, seed: int, knowledge: float) -> ChainExpert:
    return ChainExpert(problem(game).chain)


def _distracted(world: World, game: Game, seed: int, knowledge: float) -> ChainExpert:
    return ChainExpert(distracted_chain(game, knowledge, random.Random(seed)))


ARITHMETIC = WorldSpec(
    name="arithmetic",
    make=Arithmetic,
    generate=generate_games,
    kinds=tuple(f"{steps} steps" for steps in STEPS),
    instruction=(
        "You solve a word problem a step at a time: compute A + B makes one number of two (also with -, * and /), "
        "answer N ends it. Each number is used once; not all are needed."
    ),
    lists_commands=False,
    expert=_expert,
    other_experts={"distracted": _distracted},
    phrases=_PHRASES,
    attributes={
        "length": Between(STEPS[0], STEPS[-1], "steps of the chain"),
        "distractor": Between(DISTRACTORS[0], DISTRACTORS[-1], "sentences that do not matter"),
    },
    max_turns=10,
    expert_turns=10,
)
"""Generated word problems."""

PLAIN = replace(
    ARITHMETIC,
    name="arithmetic-plain",
    texts_of="arithmetic",
    generate=partial(generate_games, distractors=range(1)),
)
"""Without sentences that do not matter: to make a language model of that has yet to learn to leave them out."""
