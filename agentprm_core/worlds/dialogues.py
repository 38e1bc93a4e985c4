"""Recorded dialogues of a published environment against our world: what a check of a file says.

A world that has such recordings has a module ``dialogues`` in its folder with ``check(records) -> Report``;
``python -m benchmarks.dialogues`` calls it. Where it reads a pack, ``look_beside(folder)`` finds that beside the file.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentprm_core.errors import DataError

Compared = tuple[int, str | None, Any, Any]
"""A step (0 at reset), what was done or asked, what is recorded, what we say."""


@dataclass(frozen=True, slots=True)
class Report:
    """What became of the records of one file."""

    dialogues: int
    """Dialogues played."""
    steps: int
    """Replies compared, first observations included."""
    mismatches: int
    """Replies, rewards, ends or lists of commands that were not as recorded."""
    first: dict | None
    """The first mismatch in full: ``id``, ``step``, ``action``, ``expected``, ``found``. None without one."""


def read_records(path: Path) -> list[dict]:
    """The objects of a file of JSON lines, ``.xz`` or plain. Raises DataError for one that cannot be read, naming the
    line, and for one without any."""
    opened, records = lzma.open if path.suffix == ".xz" else open, []
    try:
        with opened(path, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    record = json.loads(line)
                except json.JSONDecodeError as error:
                    raise DataError(f"{path}, line {number}: no JSON ({error.msg}); is the file whole?") from error
                if not isinstance(record, dict):
                    raise DataError(f"{path}, line {number}: a {type(record).__name__}, not an object")
                records.append(record)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}; name a file of recorded dialogues") from error
    except (EOFError, lzma.LZMAError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read after {len(records)} records: {error}; is the file whole?") from error
    if not records:
        raise DataError(f"{path} has no records")
    return records


def tally(
    records: Sequence[dict], compared: Callable[[dict], Iterable[Compared]], played: Callable[[dict], bool]
) -> Report:
    """Counts what ``compared`` yields of each record. ``played``: whether the record counts as a dialogue.

    Raises DataError for a record that cannot be compared, by its number.
    """
    dialogues = steps = mismatches = 0
    first = None
    for number, record in enumerate(records, 1):
        with whole(number, record):
            dialogues += played(record)
            for step, action, expected, found in compared(record):
                steps += 1
                if expected != found:
                    mismatches += 1
                    where = record.get("id", f"record {number}")
                    first = first or {"id": where, "step": step, "action": action, "expected": expected, "found": found}
    return Report(dialogues, steps, mismatches, first)


@contextmanager
def whole(number: int, record: dict) -> Iterator[None]:
    """Says of a record with other contents than a recording has which one it is."""
    try:
        yield
    except DataError:
        raise
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        missing = f"no {error} in it" if isinstance(error, KeyError) else f"{type(error).__name__}: {error}"
        where = f"record {number} ({record.get('id', 'without an id')})"
        what = f"{where} is damaged, or not of this world: {missing}"
        raise DataError(f"{what}; give the whole file of this world's recordings") from error
