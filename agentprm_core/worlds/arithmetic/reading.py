"""Reads a word problem as somebody does who may be distracted by sentences that do not matter."""

from __future__ import annotations

import random

from agentprm_core.types import Game
from agentprm_core.worlds.arithmetic.engine import Problem, after, calculate, commands, problem

_TAKES = (" loses ", " sells ", " gives away ")


def distracted_chain(game: Game, knowledge: float, draws: random.Random) -> list[str]:
    """Commands that do what the sentences say, in the order of the text.

    A sentence about somebody else or another thing is left out with probability ``knowledge``, and used as if it
    mattered otherwise. With ``knowledge`` 1 this is the chain that solves the problem. What cannot be done with the
    number that has been reached is left out too. Raises UnsupportedGame as
    :func:`agentprm_core.worlds.arithmetic.engine.problem` does.
    """
    read = problem(game)
    left: int | None = None
    sight, chain = read.numbers, []
    for sentence, number in zip(sentences(read), read.numbers, strict=True):
        if not matters(sentence, game.goal) and draws.random() < knowledge:
            continue
        if left is None:
            left = number
            continue
        command = _command(sentence, left, number)
        if command not in commands(sight):
            continue
        sight = after(sight, command)
        left = calculate(command)[2]
        chain.append(command)
    return [*chain, f"answer {left if left is not None else sight[0]}"]


def sentences(read: Problem) -> list[str]:
    """Of the story, one for each of its numbers."""
    return [f"{sentence}." for sentence in read.story.removesuffix(".").split(". ")]


def matters(sentence: str, goal: str) -> bool:
    """Whether the sentence is about the person and the thing of ``goal``: ``say how many THING PERSON has now.``"""
    what, who = goal.split()[3:5]
    return sentence.startswith(f"{who} ") and what in sentence.removesuffix(".").replace(",", "").split()


def _command(sentence: str, left: int, number: int) -> str:
    """What the sentence does to the number that was reached."""
    if " splits " in sentence:
        return f"compute {left} / {number}"
    if " times as many " in sentence:
        return f"compute {left} * {number}"
    if any(verb in sentence for verb in _TAKES):
        return f"compute {max(left, number)} - {min(left, number)}"
    return f"compute {left} + {number}"
