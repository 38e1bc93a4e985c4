"""Markdown tables of benchmarks that cross two things."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tasks.report.text import markdown


def crossed(
    rows: Sequence[Mapping], down: str, across: str, cell: Callable[[Mapping], str], head: Callable[..., str] = str
) -> str:
    """A line for each value of ``down``, a column for each of ``across``, in the order of ``rows``, which has one row
    for each pair of them. ``head``: how a value of ``across`` is called."""
    lines, columns = (list(dict.fromkeys(row[name] for row in rows)) for name in (down, across))
    of = {(row[down], row[across]): row for row in rows}
    body = ([line, *(cell(of[line, column]) for column in columns)] for line in lines)
    return "\n".join(markdown((down, *map(head, columns)), body))
