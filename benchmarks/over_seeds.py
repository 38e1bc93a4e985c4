"""What the update owes to the PRM over several seeds: the mean of the paired differences of ``benchmarks.updates``.

    python -m benchmarks.over_seeds updates-1.json updates-2.json updates-3.json

Each file's last line is the JSON line of one seed. A seed is one campaign, and campaigns are the sample: the interval
is Student's t over the seeds' differences. It holds for other seeds, not for other games alone. The last line is one
JSON object: ``rows``, an arm and a split each, with the PRM's minus the arm's success by seed (``differences``), their
mean, its 95 % interval, and the p of a mean of 0.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from agentprm_core.comparing import over_seeds
from tasks.report.text import markdown


def rows_of(seeds: Sequence[Sequence[Mapping]]) -> Iterator[dict]:
    """A row for each arm, and each of its splits, that every seed has."""
    for first in seeds[0]:
        same = [row for rows in seeds for row in rows if row["arm"] == first["arm"] and row["v_prm"]]
        if len(same) < len(seeds):
            continue
        yield _row(first["arm"], "both", [-row["v_prm"]["difference"] for row in same])
        for split in first.get("by_split", {}):
            each = [-row["by_split"][split]["v_prm"]["difference"] for row in same if split in row.get("by_split", {})]
            if len(each) == len(seeds):
                yield _row(first["arm"], split, each)


def _row(arm: str, on: str, differences_S: Sequence[float]) -> dict:
    return {"arm": arm, "on": on, "differences": differences_S, **over_seeds(differences_S)}


def table(rows: Sequence[Mapping]) -> str:
    """Markdown: a row an arm and split, in points."""
    head, body = ("the PRM's policy over that of", "games", "each seed", "mean", "p"), []
    for row in rows:
        each = ", ".join(f"{100 * value:+.1f}" for value in row["differences"])
        known = row["ci_low"] is not None
        mean = f"{100 * row['mean']:+.1f}" + (
            f" [{100 * row['ci_low']:+.1f}, {100 * row['ci_high']:+.1f}]" if known else ""
        )
        body.append([row["arm"], row["on"], each, mean, f"{row['p_value']:.2g}" if known else ""])
    return "\n".join(markdown(head, body))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+", help="what benchmarks.updates printed, a file a seed")
    parser.add_argument("--json", action="store_true", help="only the JSON line")
    args = parser.parse_args()
    try:
        seeds = [json.loads(path.read_text().splitlines()[-1])["rows"] for path in args.files]
    except (OSError, ValueError, KeyError, IndexError) as error:
        sys.exit(f"over_seeds: {error}: each file is the output of benchmarks.updates")
    rows = list(rows_of(seeds))
    if not args.json:
        print(table(rows))
    print(json.dumps({"rows": rows}))


if __name__ == "__main__":
    main()
