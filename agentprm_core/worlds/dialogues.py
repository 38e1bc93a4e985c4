"""Recorded dialogues of a published environment against our world: what a check of a file says.

A world that has such recordings has a module ``dialogues`` in its folder with ``check(records) -> Report``;
``python -m benchmarks.dialogues`` calls it.
"""

from __future__ import annotations

from dataclasses import dataclass


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
