"""The tables of ``agentprm search-curves``: success of every search under every PRM, rivals against the first PRM, and
how much compute it saves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

import pyarrow as pa

from agentprm_core.evaluate import COMPUTE, LEVEL, correct, paired_test, summary, wins
from agentprm_core.search.efficiency import efficiency
from tasks.report.text import aligned, markdown

ALONE = "policy"
"""In the PRM's place where none chooses."""
ORACLE = "oracle"
"""In its place where the true Q does."""
UNTAUGHT = "likelihood"
"""In its place where the policy's own likelihood does."""
SEARCHES = ("best_of_n", "best_trajectory", "beam")
BUDGETS = ("tokens", "generated")
"""What compute is counted in: tokens that both models read, or tokens of all sampled actions; a game."""


def table(outcomes: pa.Table, methods: Mapping[str, str], first: str | None) -> list[dict]:
    """One row a cell: the figures of :func:`agentprm_core.evaluate.summary`, ``prm``, ``search`` (its method),
    ``tokens`` and the paired tests ``v_greedy`` and ``v_sample`` on the same games. ``methods``: {search: its method}.

    Rivals of the PRM ``first`` also have ``v_first``, their success minus its own in the same search, and its
    ``p_holm``, corrected for all of these.
    """
    alone = {method: wins(outcomes, method=ALONE, decoding=method) for method in ("greedy", "sample")}
    rows, against = [], []
    for row in summary(outcomes):
        won = wins(outcomes, method=row["method"], decoding=row["decoding"])
        tests = {f"v_{method}": asdict(paired_test(before, won)) for method, before in alone.items()}
        named = {"prm": row.pop("method"), "search": methods[row["decoding"]]}
        rows.append(named | row | tests | {"tokens": row["policy_read"] + row["prm_read"]})
        if first is not None and named["prm"] not in (first, ALONE, ORACLE):
            ours = wins(outcomes, method=first, decoding=row["decoding"])
            rows[-1]["v_first"] = asdict(paired_test(ours, won))
            against.append(rows[-1]["v_first"])
    correct(against)
    return sorted(rows, key=lambda row: (row["search"], row["prm"], row["tokens"]))


def efficiencies(rows: Sequence[Mapping], first: str) -> list[dict]:
    """How ``first`` stands to every other PRM in each search and each kind of budget."""
    found = []
    for search in SEARCHES:
        curves = curves_of(rows, search)
        for rival in sorted(curves.keys() - {first, ORACLE}):
            for budget in BUDGETS:
                ours, theirs = ([(row[budget], row["success"]) for row in curves[name]] for name in (first, rival))
                found.append({"search": search, "rival": rival, "budget": budget} | efficiency(ours, theirs))
    return found


def curves_of(rows: Sequence[Mapping], search: str) -> dict[str, list[Mapping]]:
    """{PRM: rows by tokens} of one search, each from sampling on."""
    sampling = [row for row in rows if row["search"] == "sample"]
    of = [row for row in rows if row["search"] == search]
    return {prm: sampling + [row for row in of if row["prm"] == prm] for prm in sorted({row["prm"] for row in of})}


def text(rows: Sequence[Mapping], compared: Sequence[Mapping], first: str | None) -> str:
    """What is printed: every cell, the efficiencies, and a table of each search in Markdown."""
    head = ("search", "PRM", "success", "95 % interval", "v. greedy", "p", "v. sample", "p")
    head += ("generated", "policy reads", "PRM reads", "world steps")
    lines = [
        [
            row["decoding"], row["prm"], f"{row['success']:.1%}", f"{row['ci_low']:.1%} – {row['ci_high']:.1%}",
            *_tested(row["v_greedy"]), *_tested(row["v_sample"]),
            *(f"{row[name]:.0f}" for name in COMPUTE),
        ]
        for row in rows
    ]  # fmt: skip
    than = ("search", "rival", "counted in", "rival's best", "rival's compute", "compute", "times less")
    against = []
    for row in compared:
        ours = ("never", "") if row["times"] is None else (f"{row['compute']:.0f}", f"{row['times']:.2f}")
        rivals = (f"{row['rival_best']:.1%}", f"{row['rival_compute']:.0f}")
        against.append([row["search"], row["rival"], row["budget"], *rivals, *ours])
    parts = [aligned(head, lines), *([aligned(than, against)] if against else [])]
    return "\n\n".join([*parts, *(by_prm(rows, search, first) for search in SEARCHES if curves_of(rows, search))])


def by_prm(rows: Sequence[Mapping], search: str, first: str | None) -> str:
    """One search in Markdown: a line a PRM, a column a size. Rivals have their points over ``first`` beside them."""
    of = sorted((row for row in rows if row["search"] == search), key=lambda row: row["tokens"])
    sizes = list(dict.fromkeys(row["decoding"] for row in of))
    prms = sorted({row["prm"] for row in of}, key=lambda prm: (prm != first, prm))
    cells = {(row["prm"], row["decoding"]): _success(row) for row in of}
    lines = markdown(("PRM", *sizes), ([prm, *(cells.get((prm, size), "") for size in sizes)] for prm in prms))
    tests = sum("v_first" in row for row in rows)
    if tests:
        said = f"In brackets: points over {first} on the same games, and the p of McNemar's exact test."
        lines += ["", f"{said} Bold: p is below {LEVEL} when it is corrected for all {tests} such tests (Holm)."]
    return "\n".join(lines)


def _success(row: Mapping) -> str:
    if (test := row.get("v_first")) is None:
        return f"{row['success']:.1%} [{100 * row['ci_low']:.1f}, {100 * row['ci_high']:.1f}]"
    said = f"{row['success']:.1%} ({100 * test['difference']:+.1f}, p {test['p_value']:.2g})"
    return f"**{said}**" if test["p_holm"] < LEVEL else said


def _tested(paired: Mapping) -> tuple[str, str]:
    return f"{100 * paired['difference']:+.1f}", f"{paired['p_value']:.3g}"
