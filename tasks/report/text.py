"""The words of a campaign: the printed table, and a Markdown report of each iteration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from agentprm_core.improve.monitor import described
from tasks.frame.clock import ORCHESTRATION

BUDGET = ("episodes played", "tokens trained", "seconds")
"""Columns of :func:`tasks.report.campaign.spent`."""
BUDGET_WORDS = (
    "Episodes played, tokens trained, seconds: all that it took, from the expert's demonstrations on. Each stage of "
    "the iterations that led to the policy counts once. Where a PRM chooses in the search, the stages that led to this "
    "PRM count too. Evaluations do not count. Seconds are wall-clock on this machine, empty where one of these stages "
    "did not run here."
)
_PLAYED = ("split", "decoding", "games", "success", "95 % interval", "mean reward")
P_VALUES = "p: McNemar's exact test on the same games. p Holm: the same, corrected for the number of such tests in all."


def iterations_text(rows: Sequence[Mapping], timings: Mapping[str, Mapping | None]) -> str:
    """What the stage prints: every row with its interval and paired test, then where the stages' time went,
    of those that ran here."""
    head = ("iteration", *_PLAYED, "v. before", "p", "p Holm", "actions", "inadmissible", *BUDGET)
    table = [[str(cell) for cell in _cells(row)] for row in rows]
    stages = ("stage", "seconds", "orchestration", *ORCHESTRATION)
    times = [
        [name, *(f"{timing[column]:.1f}" for column in stages[1:])]
        for name, timing in timings.items()
        if timing is not None
    ]
    parts = [
        f"{aligned(head, table)}\n{P_VALUES}\n{BUDGET_WORDS}",
        "\n".join(refused_lines(rows)),
        aligned(stages, times) if times else "",
    ]
    return "\n\n".join(part for part in parts if part)


def refused_lines(found: Iterable[Mapping]) -> list[str]:
    """A line for each PRM that was refused. It stands in every row of its policy, and in the figures of its stages."""
    return list(dict.fromkeys(said for one in found if (said := one.get("refused"))))


def iteration_report(
    iteration: int, rows: Sequence[Mapping], figures: Mapping[str, Mapping], added: Sequence[str] = ()
) -> str:
    """Markdown: success of the iteration's policy, and the figures of each stage that made it. ``added``: lines about
    what its PRM adds."""
    own = [row for row in rows if row["iteration"] == iteration]
    head = (*_PLAYED, "v. iteration before", "p", "p Holm", "actions", "inadmissible", *BUDGET)
    lines = [f"# Iteration {iteration}", "", *markdown(head, ([*_cells(row)][1:] for row in own)), "", P_VALUES, ""]
    lines += [BUDGET_WORDS, ""]
    lines += [line for said in refused_lines(figures.values()) for line in (f"**{said}.**", "")]
    lines += added
    lines += [line for stage, values in figures.items() for line in _flagged(stage, values.get("monitor"))]
    kinds = [row for row in own if row["decoding"] == "greedy"] or own[:1]
    for row in kinds:
        lines += [f"## By kind: {row['split']}, {row['decoding']}", ""]
        by_type = [(kind, of["games"], f"{of['success']:.1%}") for kind, of in row["by_kind"].items()]
        lines += [*markdown(("kind", "games", "success"), by_type), ""]
    for stage, values in figures.items():
        lines += [f"## {stage}", "", *markdown(("figure", "value"), _flat(values)), ""]
    return "\n".join(lines)


def _cells(row: Mapping) -> Iterable[object]:
    paired = row["paired"]
    yield row["iteration"]
    yield row["split"]
    yield row["decoding"] + ("" if row["constrained"] else ", free")
    yield row["games"]
    yield f"{row['success']:.1%}"
    yield f"{row['ci_low']:.1%} – {row['ci_high']:.1%}"
    yield f"{row['mean_reward']:.3f}"
    yield f"{100 * paired['difference']:+.1f} ({paired['gained']} won, {paired['lost']} lost)" if paired else ""
    yield f"{paired['p_value']:.3g}" if paired else ""
    yield f"{paired['p_holm']:.3g}" if paired else ""
    yield f"{row['mean_actions']:.1f}"
    yield f"{row['inadmissible']:.1%}"
    yield f"{row['episodes_played']:,}"
    yield f"{row['tokens_trained']:,}"
    yield "" if row["seconds"] is None else f"{row['seconds']:.0f}"


def _flagged(stage: str, found: Mapping | None) -> list[str]:
    """A paragraph where the reward-hacking monitor raised its flag."""
    if found is None or not found["flag"]:
        return []
    return [f"**Reward hacking suspected** in {stage}: {described(found)} (docs/how-it-works.md).", ""]


def _flat(values: Mapping, prefix: str = "") -> list[tuple[str, str]]:
    """(name, value) of the numbers; lists are curves and bins, and stand in the plots."""
    found = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            found += _flat(value, f"{prefix}{name}.")
        elif isinstance(value, float):
            found.append((prefix + name, f"{value:.4g}"))
        elif not isinstance(value, list):
            found.append((prefix + name, str(value)))
    return found


def markdown(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Lines of a table."""
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(str(cell) for cell in line)} |" for line in lines]


def aligned(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lines of columns as wide as their widest cell."""
    widths = [max(map(len, column)) for column in zip(head, *rows)]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(line, widths)).rstrip() for line in [head, *rows])
