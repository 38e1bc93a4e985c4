"""Questions answered in free text: each action is a line of reasoning, and a line ``#### ANSWER`` ends the episode.

Any text that is not blank is an action, so no commands are listed. GSM8K and MMLU are played by this engine; what an
answer may look like is theirs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Self

from agentprm_core.types import Game
from agentprm_core.worlds.base import Observation, UnsupportedGame

MARK = "####"
"""What the line of the answer starts with, as in GSM8K's solutions."""


class Reasoning:
    """The world's contract. A game's payload is JSON: ``question``, ``answer``, and ``solution``, a list of lines."""

    __slots__ = ("_answer", "_form", "_game", "_lines", "_normalise")

    def __init__(self, normalise: Callable[[str], str | None], form: str) -> None:
        """``normalise``: an answer as text → what answers that are the same have in common; None for what is no answer.
        ``form``: what an answer is, to be said where a line has none: ``a number``."""
        self._normalise, self._form = normalise, form

    def reset(self, game: Game) -> Observation:
        try:
            said = json.loads(game.payload)
            question, answer = said["question"], self._normalise(str(said["answer"]))
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise UnsupportedGame(
                f"{game.id}: the payload is not a question and an answer ({error!r}); make the games anew"
            ) from None
        if answer is None:
            raise UnsupportedGame(f"{game.id}: the answer {said['answer']!r} is not {self._form}; leave the game out")
        self._game = hashlib.blake2b(f"{game.id}\n{game.payload}".encode(), digest_size=16).digest()
        self._answer, self._lines = answer, ()
        return Observation(f"{question}\n\nYour task is to: {game.goal}", ())

    def step(self, command: str) -> Observation:
        line = command.strip()
        if not line:
            return Observation("Nothing happens.", ())
        _, marked, given = line.rpartition(MARK)
        if not marked:
            self._lines = (*self._lines, line)
            return Observation("Go on.", ())
        answer = self._normalise(given)
        if answer is None:
            return Observation(f"Nothing happens: after {MARK} comes {self._form}.", ())
        self._lines = (*self._lines, f"{MARK} {answer}")
        right = answer == self._answer
        return Observation("Right." if right else "Wrong.", (), float(right), True)

    def clone(self) -> Self:
        other = type(self)(self._normalise, self._form)
        other._game, other._answer, other._lines = self._game, self._answer, self._lines
        return other

    def state_key(self) -> str:
        return hashlib.blake2b(json.dumps(self._lines).encode(), key=self._game, digest_size=16).hexdigest()
