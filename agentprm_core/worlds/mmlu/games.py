"""Reads MMLU's files, ``SUBJECT_dev.csv`` and ``SUBJECT_test.csv``.

Columns ``question,choice0,choice1,choice2,choice3,answer``, the answer an index from 0 to 3 or a letter; the header
may be missing, as in the files of the authors.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

from agentprm_core.draws import sample_of
from agentprm_core.errors import DataError
from agentprm_core.types import Game
from agentprm_core.worlds.base import NoSplit
from agentprm_core.worlds.mmlu.subjects import GROUP_OF
from agentprm_core.worlds.published_files import published_files
from agentprm_core.worlds.reasoning import MARK

LETTERS = "ABCD"
GOAL = f"reason a step a line, then say the letter of the right choice on a line {MARK} LETTER."
SPLITS = ("dev", "test")

_COLUMNS = ["question", "choice0", "choice1", "choice2", "choice3", "answer"]
_LETTER = re.compile(r"\(?([A-Da-d])[).:]?")


def normalise(text: str) -> str | None:
    """The letter: ``(b).`` → ``B``. None where it is none of A to D."""
    found = _LETTER.fullmatch(text.strip().strip("*").removesuffix("."))
    return found[1].upper() if found else None


def load_games(root: Path, split: str, limit: int | None) -> list[Game]:
    """The games of ``split`` (``dev``, ``test``), sorted by id: all, or a sample of ``limit``.

    A question that is there twice, in one subject or in two, is one game, and one of ``dev`` is not in ``test``: of the
    14,042 published test rows 13,932 are games. Raises DataError: no such split, no file, a row that is no question.
    """
    if split not in SPLITS:
        raise NoSplit(f"mmlu: {split!r} is not one of {', '.join(SPLITS)}", SPLITS)
    found = _read(root, "dev")
    if split == "test":
        found = {asked: game for asked, game in _read(root, "test").items() if asked not in found}
    return sample_of(list(found.values()), limit)


def _read(root: Path, split: str) -> dict[str, Game]:
    """Payload → game."""
    ending, games = f"_{split}.csv", {}
    for where, text in published_files(root, lambda name: name.endswith(ending), f"MMLU (SUBJECT{ending})"):
        subject = Path(where).name.removesuffix(ending)
        if subject not in GROUP_OF:
            raise DataError(f"{where}: {subject!r} is not a subject of MMLU")
        for place, row in _rows(where, text):
            game = _game(place, row, subject, split)
            games.setdefault(game.payload, game)
    return games


def _rows(where: str, text: str) -> Iterator[tuple[str, list[str]]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for row in reader:
            if row != _COLUMNS:
                yield f"{where}, line {reader.line_num}", row
    except csv.Error as error:
        raise DataError(f"{where}, line {reader.line_num}: {error} (cut off?); fetch MMLU again") from None


def _game(place: str, row: list[str], subject: str, split: str) -> Game:
    if len(row) != len(_COLUMNS):
        raise DataError(f"{place}: {len(row)} columns instead of {len(_COLUMNS)} (cut off?); fetch MMLU again")
    question, *choices, right = row
    letter = LETTERS[int(right)] if right in ("0", "1", "2", "3") else right
    if letter not in tuple(LETTERS):
        raise DataError(f"{place}: the answer {right!r} is neither 0 to 3 nor A to D; mend or delete the row")
    asked = "\n".join([question.strip(), *(f"{name}. {choice.strip()}" for name, choice in zip(LETTERS, choices))])
    return Game(
        id=f"{split}/{subject}/{hashlib.blake2b(asked.encode(), digest_size=8).hexdigest()}",
        world="mmlu",
        split=split,
        kind=GROUP_OF[subject],
        goal=GOAL,
        payload=json.dumps({"question": asked, "answer": letter, "solution": []}),
        attributes={"subject": subject},
    )
