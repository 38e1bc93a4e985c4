"""Plays a word problem: ``compute A + B`` merges two numbers in sight, ``answer N`` ends the episode.

In sight are the problem's numbers, in the order of the text. A command uses its two up, and their result comes first
in sight, so that a chain goes on as ``compute RESULT …``. Results are whole numbers from 1 to :data:`LIMIT`; a command
with another result is not admissible. The reward is 1 for the right answer.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

from agentprm_core.types import Game
from agentprm_core.worlds.base import Observation, UnsupportedGame

LIMIT = 400
"""The largest number of a chain and of a result."""

_CACHED = 2048
"""Lists of commands that are kept: episodes and clones of one game meet the same numbers."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What a game's payload says, as JSON."""

    story: str
    numbers: tuple[int, ...]
    """In the order of the text."""
    chain: tuple[str, ...]
    """The commands that solve it, the answer included."""
    answer: int


@lru_cache(maxsize=_CACHED)
def commands(sight: tuple[int, ...]) -> tuple[str, ...]:
    """What may be done with these numbers in sight, sorted.

    A sum or product has the number that comes first in sight before the other, so with a number that is in sight twice
    it may be listed in both orders; a difference is larger minus smaller; a quotient is listed where it is whole.
    """
    found = {f"answer {number}" for number in sight}
    for place, a in enumerate(sight):
        for b in sight[place + 1 :]:
            if a + b <= LIMIT:
                found.add(f"compute {a} + {b}")
            if a * b <= LIMIT:
                found.add(f"compute {a} * {b}")
            high, low = (a, b) if a > b else (b, a)
            if high > low:
                found.add(f"compute {high} - {low}")
            if high % low == 0:
                found.add(f"compute {high} / {low}")
    return tuple(sorted(found))


def calculate(command: str) -> tuple[int, int, int]:
    """(left, right, result) of ``compute A op B``, which is one of :func:`commands`."""
    _, a, operation, b = command.split(" ")
    left, right = int(a), int(b)
    if operation == "+":
        return left, right, left + right
    if operation == "-":
        return left, right, left - right
    return left, right, left * right if operation == "*" else left // right


def after(sight: tuple[int, ...], command: str) -> tuple[int, ...]:
    """What is in sight after ``compute A op B``."""
    left, right, result = calculate(command)
    rest = list(sight)
    rest.remove(left)
    rest.remove(right)
    return (result, *rest)


def problem(game: Game) -> Problem:
    """The problem of ``game``, its chain checked. Raises UnsupportedGame with the game's id and the reason."""
    found = _problem(game.payload)
    if isinstance(found, str):
        raise UnsupportedGame(f"{game.id}: {found}; generate it again (games.published: null)")
    return found


@lru_cache(maxsize=_CACHED)
def _problem(payload: str) -> Problem | str:
    """The problem, or what is wrong with it."""
    try:
        said = json.loads(payload)
        read = Problem(said["story"], tuple(said["numbers"]), tuple(said["chain"]), said["answer"])
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        return f"the payload is not a problem ({error!r})"
    if not isinstance(read.answer, int) or isinstance(read.answer, bool):
        return f"the answer {read.answer!r} is no number"
    strange = [number for number in read.numbers if not isinstance(number, int) or not 1 <= number <= LIMIT]
    if strange:
        return f"{strange[0]!r} is not a whole number from 1 to {LIMIT}"
    sight = read.numbers
    for command in read.chain:
        if command not in commands(sight):
            return f"{command!r} of the chain cannot be done with the numbers {sight}"
        if command.startswith("compute"):
            sight = after(sight, command)
    if not read.chain or read.chain[-1] != f"answer {read.answer}":
        return f"the chain does not end with the answer {read.answer}"
    return read


class Arithmetic:
    """The world's contract (:class:`agentprm_core.worlds.base.World`)."""

    __slots__ = ("_answer", "_commands", "_game", "_given", "_sight")

    def reset(self, game: Game) -> Observation:
        read = problem(game)
        self._game = hashlib.blake2b(f"{game.id}\n{game.payload}".encode(), digest_size=16).digest()
        self._answer, self._given, self._sight = read.answer, None, read.numbers
        self._commands = commands(read.numbers)
        return Observation(f"{read.story}\n\nYour task is to: {game.goal}", self._commands)

    def step(self, command: str) -> Observation:
        if command not in self._commands:
            return Observation("Nothing happens.", self._commands)
        if command.startswith("answer"):
            self._given = int(command.removeprefix("answer "))
            right = self._given == self._answer
            return Observation("Right." if right else "Wrong.", (), float(right), True)
        self._sight = after(self._sight, command)
        self._commands = commands(self._sight)
        return Observation(f"That makes {self._sight[0]}.", self._commands)

    def clone(self) -> Self:
        other = type(self)()
        other._game, other._answer, other._given = self._game, self._answer, self._given
        other._sight, other._commands = self._sight, self._commands
        return other

    def state_key(self) -> str:
        return hashlib.blake2b(f"{self._sight}{self._given}".encode(), key=self._game, digest_size=16).hexdigest()
