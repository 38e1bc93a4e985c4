"""Reads GSM8K's files, ``train.jsonl`` and ``test.jsonl``: a JSON object a line, ``question`` and ``answer``.

An answer is a solution, a step a line with notes such as ``<<16-3-4=9>>``, and at last ``#### 9``.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

from agentprm_core.draws import sample_of
from agentprm_core.errors import DataError
from agentprm_core.types import Game
from agentprm_core.worlds.base import NoSplit
from agentprm_core.worlds.gsm8k.answers import normalise
from agentprm_core.worlds.published_files import published_files
from agentprm_core.worlds.reasoning import MARK

GOAL = f"reason a step a line, then say the number on a line {MARK} NUMBER."
SPLITS = ("train", "held_out", "test")
MOST_STEPS = 8
"""Solutions of more steps are of the same kind."""

_NOTE = re.compile(r"<<[^>]*>>")
_HELD_OUT = 16
"""One training problem in so many is ``held_out``: the published data has no split for validation."""


def kind(steps: int) -> str:
    if steps == 1:
        return "1 step"
    return f"{steps} steps" if steps < MOST_STEPS else f"{MOST_STEPS} steps or more"


def load_games(root: Path, split: str, limit: int | None) -> list[Game]:
    """The games of ``split``: ``test``, ``train`` and ``held_out``, which is a sixteenth of the published training
    problems, drawn by digest, and not in ``train``. Sorted by id: all, or a sample of ``limit``.

    Raises DataError: no such split, no file, a line that is no problem, an answer that is no number.
    """
    if split not in SPLITS:
        raise NoSplit(f"gsm8k: {split!r} is not one of {', '.join(SPLITS)}", SPLITS)
    name = "test.jsonl" if split == "test" else "train.jsonl"
    games = [
        _game(f"{where}, line {number}", line, split)
        for where, text in published_files(root, lambda file: file == name, f"GSM8K ({name})")
        for number, line in enumerate(text.removesuffix("\n").split("\n"), start=1)
    ]
    chosen = {game.id: game for game in games if split == "test" or _held_out(game) == (split == "held_out")}
    return sample_of(list(chosen.values()), limit)


def _held_out(game: Game) -> bool:
    return int(game.id.rpartition("/")[2], 16) % _HELD_OUT == 0


def _game(where: str, line: str, split: str) -> Game:
    try:
        said = json.loads(line)
        question, (solution, marked, answer) = said["question"], said["answer"].rpartition(MARK)
        digest = hashlib.blake2b(question.encode(), digest_size=8).hexdigest()
    except (json.JSONDecodeError, KeyError, TypeError, AttributeError):
        raise DataError(f"{where}: not a JSON object with question and answer (cut off?); fetch GSM8K again") from None
    if not marked or normalise(answer) is None:
        raise DataError(f"{where}: the answer {answer.strip()!r} is no number after {MARK}; mend or delete the line")
    lines = [step for step in (_NOTE.sub("", text).strip() for text in solution.splitlines()) if step]
    return Game(
        id=f"{split}/{digest}",
        world="gsm8k",
        split=split,
        kind=kind(max(len(lines), 1)),
        goal=GOAL,
        payload=json.dumps({"question": question.strip(), "answer": normalise(answer), "solution": lines}),
        attributes={"source": "published"},
    )
