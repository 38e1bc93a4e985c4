"""What the PRM is worth over several seeds: means of what ``benchmarks.updates`` or ``benchmarks.placebo`` measured.

    python -m benchmarks.over_seeds updates-1.json updates-2.json updates-3.json
    python -m benchmarks.over_seeds placebo-1.json placebo-2.json placebo-3.json --prior 0.1

Each file's last line is the JSON line of one seed. A seed is one campaign, and campaigns are the sample: the interval
is Student's t over the seeds' differences. It holds for other seeds, not for other games alone.

The last line is one JSON object: ``rows``. Of updates, an arm and a split each, with the PRM's minus the arm's success
by seed (``differences``), their mean, its 95 % interval, and the p of a mean of 0. Of searches, a search, a scorer and
its prior each, with ``success`` by seed, and the same of the PRM's minus it. ``--prior`` is the PRM's. Every other
scorer stands there with each prior that it was played with, so it can be read at the one that suits it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from agentprm_core.comparing import over_seeds
from agentprm_core.search.decoding_config import PRM
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


def searches_of(seeds: Sequence[Sequence[Mapping]], prior: float) -> Iterator[dict]:
    """A row for each search, scorer and prior that every seed has, on all games and on each split, where every seed
    has the PRM's with ``prior`` as well."""
    found = [{_cell(row): row for row in rows} for rows in seeds]
    for cell in found[0]:
        of_prm = (cell[0], prior, PRM)
        if cell == of_prm or not all({cell, of_prm} <= rows.keys() for rows in found):
            continue
        for on in ("all", *found[0][cell].get("by_split", {})):
            success_S, prm_S = ([_success(rows[each], on) for rows in found] for each in (cell, of_prm))
            differences_S = [with_prm - without for with_prm, without in zip(prm_S, success_S, strict=True)]
            named = dict(zip(("search", "prior", "scorer"), cell, strict=True))
            measured = {"on": on, "success": success_S, "success_of_prm": prm_S, "differences": differences_S}
            yield {**named, **measured, **over_seeds(differences_S)}


def _cell(row: Mapping) -> tuple[str, float, str]:
    return row["search"], row["prior"], row["scorer"]


def _success(row: Mapping, on: str) -> float:
    return row["success"] if on == "all" else row["by_split"][on]


def _row(arm: str, on: str, differences_S: Sequence[float]) -> dict:
    return {"arm": arm, "on": on, "differences": differences_S, **over_seeds(differences_S)}


def table(rows: Sequence[Mapping]) -> str:
    """Markdown, in points: a row an arm and split."""
    head = ("the PRM's policy over that of", "games", "each seed", "mean", "p")
    return "\n".join(markdown(head, [[row["arm"], row["on"], *_told(row)] for row in rows]))


def table_of_searches(rows: Sequence[Mapping]) -> str:
    """Markdown, in per cent and points: a row a search, scorer, prior and split."""
    head = ("search", "scorer", "τ", "games", "success", "the PRM's", "the PRM's over it, each seed", "mean", "p")
    body = []
    for row in rows:
        means = [f"{100 * fmean(row[name]):.1f}" for name in ("success", "success_of_prm")]
        body.append([row["search"], row["scorer"], f"{row['prior']:g}", row["on"], *means, *_told(row)])
    return "\n".join(markdown(head, body))


def _told(row: Mapping) -> tuple[str, str, str]:
    each = ", ".join(f"{100 * value:+.1f}" for value in row["differences"])
    mean = f"{100 * row['mean']:+.1f}"
    if row["ci_low"] is None:
        return each, mean, ""
    return each, f"{mean} [{100 * row['ci_low']:+.1f}, {100 * row['ci_high']:+.1f}]", f"{row['p_value']:.2g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "files", type=Path, nargs="+", help="what benchmarks.updates or .placebo printed, a file a seed"
    )
    parser.add_argument("--prior", type=float, default=0.1, help="τ of the PRM's searches (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="only the JSON line")
    args = parser.parse_args()
    try:
        seeds = [json.loads(path.read_text().splitlines()[-1])["rows"] for path in args.files]
    except (OSError, ValueError, KeyError, IndexError) as error:
        sys.exit(f"over_seeds: {error}: each file is the output of benchmarks.updates or of benchmarks.placebo")
    kinds = {"scorer" in row for rows in seeds for row in rows}
    if len(kinds) != 1:
        sys.exit("over_seeds: the files must all be of benchmarks.updates, or all of benchmarks.placebo")
    searches = kinds == {True}
    rows = list(searches_of(seeds, args.prior) if searches else rows_of(seeds))
    if not args.json:
        print(table_of_searches(rows) if searches else table(rows))
    print(json.dumps({"rows": rows}))


if __name__ == "__main__":
    main()
