"""What ``make run`` ends with: the table of iterations, and how to open the UIs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

ITERATIONS = Path("data/metrics/iterations.json")
_COLUMNS = ("method", "iteration", "split", "decoding", "games", "success", "95 % interval", "actions", "seconds")


def iterations_table(rows: Sequence[Mapping[str, object]]) -> str:
    """``rows`` of ``data/metrics/iterations.json`` as aligned text: success in per cent, actions an episode."""
    cells = [_COLUMNS] + [
        (
            str(row["method"]),
            str(row["iteration"]),
            str(row["split"]),
            str(row["decoding"]),
            str(row["games"]),
            f"{100 * row['success']:.1f}",
            f"{100 * row['ci_low']:.1f} - {100 * row['ci_high']:.1f}",
            f"{row['mean_actions']:.1f}",
            f"{row['seconds']:.0f}",
        )
        for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(*cells)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in cells)


def main() -> None:
    """Print the table and the two lines. Raises FileNotFoundError when ``compare`` has not run."""
    print(iterations_table(json.loads(ITERATIONS.read_text())))
    print("\nPrefect: make ui, then http://127.0.0.1:4200\nMLflow:  make ui, then http://127.0.0.1:5000")


if __name__ == "__main__":
    main()
