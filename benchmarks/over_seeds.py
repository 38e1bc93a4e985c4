"""What the PRM is worth over several seeds: means of what ``benchmarks.updates`` or ``benchmarks.placebo`` measured.

    python -m benchmarks.over_seeds updates-1.json updates-2.json updates-3.json
    python -m benchmarks.over_seeds placebo-1.json placebo-2.json placebo-3.json --prior 0.1
    python -m benchmarks.over_seeds new-1.json new-2.json new-3.json --against old-1.json old-2.json old-3.json

Each file's last line is the JSON line of one seed. A seed is one campaign, and campaigns are the sample: the interval
is Student's t over the seeds' differences. It holds for other seeds, not for other games alone.

The last line is one JSON object: ``rows``. Of updates, an arm and a split each, with the PRM's minus the arm's success
by seed (``differences``), their mean, its 95 % interval, and the p of a mean of 0. Of searches, a search, a scorer and
its prior each, with ``success`` by seed, and the same of the PRM's minus it. ``--prior`` is the PRM's. Every other
scorer stands there with each prior that it was played with, so it can be read at the one that suits it. The scorer
``nothing learnt``, without a prior, is the best by seed of those that learnt nothing, with any prior: of what all seeds
were played with.

``--picture FILE`` draws the rows: a dot a seed, and the mean with its interval.

``--against`` has the searches of the same seeds under another PRM, in the same order. Then a row is a search, a prior
and a split: success under the PRM (``success``) and under the other one (``success_against``) by seed, and their
differences. ``nothing`` is the best success by seed of the scorers that learnt nothing, with any prior, in the same
search. ``over_nothing`` and ``against_over_nothing`` are the mean, interval and p of either PRM's success minus it.

``p_holm`` stands beside each p: corrected for the number of all that are in the table (Holm), those over the best that
learnt nothing among them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from agentprm_core.arguments import OneLineParser, not_negative, repeated
from agentprm_core.comparing import over_seeds
from agentprm_core.evaluate import correct
from agentprm_core.search.decoding_config import LIKELIHOOD, PRM
from tasks.report import figures
from tasks.report.text import markdown

UNTAUGHT = (LIKELIHOOD, "constant", "random")
"""Scorers that learnt nothing from rollouts."""
NOTHING = "nothing learnt"
"""The best of them."""


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
            yield _search_row(cell, on, success_S, prm_S)
    yield from _best_of(found, prior)


def _best_of(found: Sequence[Mapping[tuple[str, float, str], Mapping]], prior: float) -> Iterator[dict]:
    """A row for each search and split where the best scorer that learnt nothing is known in every seed."""
    for search, of, scorer in found[0]:
        if (of, scorer) != (prior, PRM) or not all((search, prior, PRM) in rows for rows in found):
            continue
        untaught = [cell for cell in found[0] if cell[0] == search and cell[2] in UNTAUGHT]
        untaught = [cell for cell in untaught if all(cell in rows for rows in found)]
        if len(untaught) < 2:
            continue  # it would be that one's row once more
        for on in ("all", *found[0][search, prior, PRM].get("by_split", {})):
            best_S = [max(_success(rows[cell], on) for cell in untaught) for rows in found]
            prm_S = [_success(rows[search, prior, PRM], on) for rows in found]
            yield _search_row((search, None, NOTHING), on, best_S, prm_S)


def _search_row(
    cell: tuple[str, float | None, str], on: str, success_S: Sequence[float], prm_S: Sequence[float]
) -> dict:
    differences_S = [with_prm - without for with_prm, without in zip(prm_S, success_S, strict=True)]
    named = dict(zip(("search", "prior", "scorer"), cell, strict=True))
    measured = {"on": on, "success": success_S, "success_of_prm": prm_S, "differences": differences_S}
    return {**named, **measured, **over_seeds(differences_S)}


def prms_of(seeds: Sequence[Sequence[Mapping]], against: Sequence[Sequence[Mapping]]) -> Iterator[dict]:
    """A row for each search and prior that every seed has under both PRMs, on all games and on each split."""
    found, others = ([{_cell(row): row for row in rows} for rows in each] for each in (seeds, against))
    for cell, first in found[0].items():
        if cell[2] != PRM or not all(cell in rows for rows in (*found, *others)):
            continue
        for on in ("all", *first.get("by_split", {})):
            success_S, against_S = ([_success(rows[cell], on) for rows in each] for each in (found, others))
            differences_S = [new - old for new, old in zip(success_S, against_S, strict=True)]
            row = {"search": cell[0], "prior": cell[1], "on": on, "success": success_S, "success_against": against_S}
            row |= {"differences": differences_S, **over_seeds(differences_S)}
            nothing_S = [best for rows in found if (best := _best_untaught(rows, cell[0], on)) is not None]
            if len(nothing_S) == len(found):
                row["nothing"] = nothing_S
                for name, of_S in (("over_nothing", success_S), ("against_over_nothing", against_S)):
                    row[name] = over_seeds([one - best for one, best in zip(of_S, nothing_S, strict=True)])
            yield row


def correct_all(rows: Sequence[dict]) -> None:
    """Write ``p_holm`` into every test of a table's rows."""
    nested = [row[name] for row in rows for name in ("over_nothing", "against_over_nothing") if name in row]
    correct([*rows, *nested])


def _best_untaught(rows: Mapping[tuple[str, float, str], Mapping], search: str, on: str) -> float | None:
    found = (_success(row, on) for (of, _, scorer), row in rows.items() if of == search and scorer in UNTAUGHT)
    return max(found, default=None)


def _cell(row: Mapping) -> tuple[str, float, str]:
    return row["search"], row["prior"], row["scorer"]


def _success(row: Mapping, on: str) -> float:
    return row["success"] if on == "all" else row["by_split"][on]


def _row(arm: str, on: str, differences_S: Sequence[float]) -> dict:
    return {"arm": arm, "on": on, "differences": differences_S, **over_seeds(differences_S)}


def table(rows: Sequence[Mapping]) -> str:
    """Markdown, in points: a row an arm and split."""
    head = ("the PRM's policy over that of", "games", "each seed", "mean", "p", "p Holm")
    return "\n".join(markdown(head, [[row["arm"], row["on"], *_told(row)] for row in rows]))


def table_of_searches(rows: Sequence[Mapping]) -> str:
    """Markdown, in per cent and points: a row a search, scorer, prior and split."""
    head = ("search", "scorer", "τ", "games", "success", "the PRM's", "the PRM's over it, each seed", "mean", "p")
    head += ("p Holm",)
    body = []
    for row in rows:
        means = [f"{100 * fmean(row[name]):.1f}" for name in ("success", "success_of_prm")]
        prior = "any" if row["prior"] is None else f"{row['prior']:g}"
        body.append([row["search"], row["scorer"], prior, row["on"], *means, *_told(row)])
    return "\n".join(markdown(head, body))


def table_of_prms(rows: Sequence[Mapping]) -> str:
    """Markdown, in per cent and points: a row a search, prior and split."""
    head = (
        "search",
        "τ",
        "games",
        "success",
        "the other PRM's",
        "over it",
        "p Holm",
        "nothing learnt",
        "over that",
        "p Holm",
        "the other's",
        "p Holm",
    )
    body = []
    for row in rows:
        each = [_each(row.get(name, ())) for name in ("success", "success_against", "nothing")]
        means = [cell for name in ("over_nothing", "against_over_nothing") for cell in _mean(row.get(name))]
        body.append([row["search"], f"{row['prior']:g}", row["on"], *each[:2], *_mean(row), each[2], *means])
    return "\n".join(markdown(head, body))


def picture(rows: Sequence[Mapping], path: Path, x: str) -> None:
    """Draw the rows of one of the tables: a panel a set of games, a line a row. ``x`` says what its differences are."""
    panels: dict[str, list[dict]] = {}
    for row in rows:
        prior = row.get("prior")
        words = [row[name] for name in ("arm", "search", "scorer") if name in row]
        name = ", ".join(words) + ("" if prior is None else f", τ {prior:g}")
        panels.setdefault(row["on"], []).append({**row, "name": name})
    figures.over_seeds(panels, path, x)


def _each(share_S: Sequence[float]) -> str:
    return ", ".join(f"{100 * share:.1f}" for share in share_S)


def _mean(found: Mapping | None) -> tuple[str, str]:
    if found is None:
        return "", ""
    mean, interval, p_value, p_holm = _parts(found)
    return (f"{mean} {interval}, p {p_value}" if interval else mean), p_holm


def _told(row: Mapping) -> tuple[str, str, str, str]:
    each = ", ".join(f"{100 * value:+.1f}" for value in row["differences"])
    mean, interval, p_value, p_holm = _parts(row)
    return each, f"{mean} {interval}".strip(), p_value, p_holm


def _parts(found: Mapping) -> tuple[str, str, str, str]:
    mean = f"{100 * found['mean']:+.1f}"
    if found["ci_low"] is None:
        return mean, "", "", ""
    interval = f"[{100 * found['ci_low']:+.1f}, {100 * found['ci_high']:+.1f}]"
    return mean, interval, f"{found['p_value']:.2g}", f"{found['p_holm']:.2g}"


def main() -> None:
    parser = OneLineParser(
        prog="python -m benchmarks.over_seeds",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "files", type=Path, nargs="+", help="what benchmarks.updates or .placebo printed, a file a seed"
    )
    parser.add_argument("--prior", type=not_negative, default=0.1, help="τ of the PRM's searches (default %(default)s)")
    parser.add_argument(
        "--against", type=Path, nargs="+", default=[], help="of benchmarks.placebo, under another PRM: a file a seed"
    )
    parser.add_argument("--picture", type=Path, help="a PNG file to draw the rows in")
    parser.add_argument("--json", action="store_true", help="only the JSON line")
    args = parser.parse_args()
    for paths in (args.files, args.against):
        if (place := repeated(paths)) is not None:
            parser.error(f"{paths[place]} is there twice: give the file of each seed once")
    try:
        seeds, against = ([_rows(path) for path in paths] for paths in (args.files, args.against))
    except (OSError, ValueError, KeyError, IndexError) as error:
        sys.exit(f"over_seeds: {error}: each file is the output of benchmarks.updates or of benchmarks.placebo")
    kinds = {"scorer" in row for rows in (*seeds, *against) for row in rows}
    if len(kinds) != 1:
        sys.exit("over_seeds: the files must all be of benchmarks.updates, or all of benchmarks.placebo")
    searches = kinds == {True}
    if against and (not searches or len(against) != len(seeds)):
        sys.exit(
            f"over_seeds: --against: {len(seeds)} and {len(against)} files: it takes the output of benchmarks.placebo "
            "for the same seeds, in the same order"
        )
    if against:
        rows, told = list(prms_of(seeds, against)), table_of_prms
    elif searches:
        rows, told = list(searches_of(seeds, args.prior)), table_of_searches
        searches = [row["search"] for row in rows]
        rows.sort(key=lambda row: searches.index(row["search"]))
    else:
        rows, told = list(rows_of(seeds)), table
    correct_all(rows)
    if args.picture:
        picture(rows, args.picture, f"{'over the other PRM' if against else 'the PRM over it'}, points")
    if not args.json:
        print(told(rows))
    print(json.dumps({"rows": rows}))


def _rows(path: Path) -> list[dict]:
    return json.loads(path.read_text().splitlines()[-1])["rows"]


if __name__ == "__main__":
    main()
