"""The pictures of a campaign and of searches, each from rows that a metrics file holds. Same rows, same bytes.

Colours are Okabe and Ito's, which colour-blind readers tell apart; every line has a marker of its own besides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # before pyplot: no display is asked for

import matplotlib.pyplot as plt
from matplotlib.ticker import MaxNLocator, PercentFormatter, StrMethodFormatter

from agentprm_core.datasets import atomic_write
from agentprm_core.evaluate import wilson

_WIDTH, _HEIGHT = 4.6, 3.4
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_INTERVAL = ("mean", "ci_low", "ci_high")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_MEAN = len(_COLOURS) - 1
"""The black line's."""


def success_by_iteration(rows: Sequence[Mapping], path: Path) -> None:
    """Success with its 95 % interval against the iteration: a panel a split, a line a way of decoding."""
    figure, panels = _panels(splits := sorted({row["split"] for row in rows}))
    decodings = sorted({row["decoding"] for row in rows})
    for panel, split in zip(panels, splits):
        for number, decoding in enumerate(decodings):
            line = _line(rows, split, decoding)
            x = [row["iteration"] + _dodge(number, len(decodings)) for row in line]
            _with_interval(panel, x, line, number, decoding)
        games = _line(rows, split, decodings[-1])[0]["games"]
        _frame(panel, f"{split}, {games} games", "iteration", "success")
        _by_iteration(panel, rows)
    _legend_below(figure, panels[0])
    _save(figure, path)


def success_over_seeds(rows: Sequence[Mapping], path: Path) -> None:
    """Success against the iteration in each seed, with its 95 % Wilson interval, and the mean in black with Student's
    over the seeds: a panel a split. ``rows``: of :func:`tasks.commands.report_seeds.together`, of one decoding."""
    figure, panels = _panels(splits := sorted({row["split"] for row in rows}))
    seeds = list(rows[0]["by_seed"])
    for panel, split in zip(panels, splits):
        of_split = [row for row in rows if row["split"] == split]
        for number, seed in enumerate(seeds):
            x = [row["iteration"] + _dodge(number, len(seeds) + 1) for row in of_split]
            _with_interval(panel, x, [row["by_seed"][seed] for row in of_split], number % _MEAN, f"seed {seed}")
        mean = [
            {"success": row["mean"], "ci_low": row["mean"], "ci_high": row["mean"]}
            | {end: row[end] for end in ("ci_low", "ci_high") if row[end] is not None}
            for row in of_split
        ]
        x = [row["iteration"] + _dodge(len(seeds), len(seeds) + 1) for row in of_split]
        _with_interval(panel, x, mean, _MEAN, f"mean of {len(seeds)} seeds")
        _frame(panel, f"{split}, {rows[0]['decoding']}", "iteration", "success")
        _by_iteration(panel, of_split)
    _legend_below(figure, panels[0])
    _save(figure, path)


def success_by_kind(rows: Sequence[Mapping], path: Path) -> None:
    """Success of each kind of task with its 95 % interval against the iteration; ``rows`` are of one split and one way
    of decoding. A panel a type, since six lines in one hide each other's intervals."""
    kinds = sorted({kind for row in rows for kind in row["by_kind"]})
    figure, grid = plt.subplots(
        -(-len(kinds) // 3),
        3,
        figsize=(_WIDTH * 2.1, 2.5 * -(-len(kinds) // 3)),
        sharex=True,
        sharey=True,
        squeeze=False,
    )
    for number, (panel, kind) in enumerate(zip(grid.flat, kinds)):
        line = []
        for row in rows:
            if of := row["by_kind"].get(kind):
                low, high = wilson(round(of["success"] * of["games"]), of["games"])
                line.append({**of, "iteration": row["iteration"], "ci_low": low, "ci_high": high})
        _with_interval(panel, [row["iteration"] for row in line], line, number, kind)
        of_kind = {row["games"] for row in line}
        title = f"{kind.replace('_', ' ')}, {' or '.join(map(str, sorted(of_kind)))} games"
        _frame(panel, title, "iteration" if number >= len(kinds) - 3 else "", "success" if number % 3 == 0 else "")
        panel.title.set_fontsize(9)
        _percent(panel.yaxis)
        _by_iteration(panel, rows)
    for panel in grid.flat[len(kinds) :]:
        panel.set_visible(False)
    figure.suptitle(f"{rows[0]['split']}, {rows[0]['decoding']}", fontsize=11)
    _save(figure, path)


def gain_of_search(rows: Sequence[Mapping], path: Path) -> None:
    """What a search adds to the policy's own play, in points with the 95 % interval of the paired
    difference: a panel a split, a line a search. ``rows`` are those whose ``over_policy`` is not None."""
    if not rows:
        figure, (panel,) = _panels([None])
        _nothing(panel, "no search was evaluated beside the policy's own play")
        return _save(figure, path)
    splits = sorted({row["split"] for row in rows})
    figure, panels = _panels(splits)
    decodings = sorted({row["decoding"] for row in rows})
    for panel, split in zip(panels, splits):
        panel.axhline(0, color="0.4", linewidth=1)
        for number, decoding in enumerate(decodings):
            line = _line(rows, split, decoding)
            tests = [row["over_policy"] for row in line]
            x = [row["iteration"] + _dodge(number, len(decodings)) for row in line]
            gain = [100 * test["difference"] for test in tests]
            low, high = ([100 * test[end] for test in tests] for end in ("ci_low", "ci_high"))
            panel.errorbar(x, gain, yerr=_spread(gain, low, high), capsize=3, label=decoding, **_style(number))
        first = _line(rows, split, decodings[-1])[0]
        axis = f"success over {first['policy_decoding']}, points"
        _frame(panel, f"{split}, {first['games']} games", "iteration of the policy", axis)
        _by_iteration(panel, rows)
    _legend_below(figure, panels[0])
    return _save(figure, path)


def calibration(bins_by_iteration: Mapping[int, Sequence[Mapping]], path: Path, target: str) -> None:
    """Mean ``target`` against mean score, on games the PRM was not trained on: on the diagonal it is true. A point's
    area follows the share of the turns that it stands for."""
    figure, (panel,) = _panels([None])
    panel.plot([0, 1], [0, 1], color="0.6", linewidth=1, linestyle="--")
    for number, (iteration, bins) in enumerate(bins_by_iteration.items()):
        x, y = [b["score"] for b in bins], [b["q"] for b in bins]
        turns = sum(b["count"] for b in bins)
        style = _style(number)
        panel.plot(x, y, color=style["color"], linewidth=1)
        areas = [10 + 250 * b["count"] / turns for b in bins]
        panel.scatter(x, y, areas, color=style["color"], marker=style["marker"], alpha=0.8)
        panel.plot([], [], label=f"PRM {iteration}, {turns:,} turns", **style)
    _frame(panel, "Calibration of Q on held-out games", "PRM score", target)
    panel.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal")
    _legend_below(figure, panel)
    _save(figure, path)


def coverage(report: Mapping, path: Path) -> None:
    """Can Monte Carlo labels be trusted: visits per (s,a), their variance by visits, and what they foretell of the
    other half of the episodes (:mod:`agentprm_core.credit.coverage`)."""
    figure, (visits, variance, foretold) = plt.subplots(1, 3, figsize=(_WIDTH * 3, _HEIGHT))
    rows = report["visits"]
    names = [_range_name(row) for row in rows]
    visits.bar(names, [row["turns"] for row in rows])
    _frame(visits, f"by {report['key']}", "visits of a turn's (s,a)", "turns")
    several = [row for row in rows if row["q_variance"] is not None]
    for figure_name, label in (("return_variance", "of a return"), ("q_variance", "of Q, their mean")):
        variance.plot([_range_name(r) for r in several], [r[figure_name] for r in several], marker="o", label=label)
    _frame(variance, "variance", "visits", "variance")
    variance.legend(frameon=False)
    halves = (
        (report["held_out"]["by_visits"], "correlation", "Q with the other half's returns"),
        (report["ranking"]["by_visits"], "accuracy", "order of two actions agrees"),
    )
    for found, name, label in halves:
        known = [row for row in found if row[name] is not None]
        foretold.plot([_range_name(row) for row in known], [row[name] for row in known], marker="o", label=label)
    foretold.axhline(0.5, color="0.7", linewidth=1)
    _frame(foretold, "one half of the episodes foretells the other", "visits in the first half", "")
    foretold.legend(frameon=False, fontsize=7)
    _save(figure, path)


def _range_name(row: Mapping) -> str:
    return str(row["to"]) if row["from"] == row["to"] else f"{row['from']}–{row['to']}"


def score_against_success(rows: Sequence[Mapping], path: Path) -> None:
    """What the PRM thinks of the policy's play against how often it won: they part where the PRM is hacked."""
    figure, (panel,) = _panels([None])
    for number, split in enumerate(sorted({row["split"] for row in rows})):
        line = [row for row in rows if row["split"] == split]
        _with_interval(panel, [row["score"] for row in line], line, number, f"{split}, {line[0]['games']} games")
        for row in line:
            at = (row["score"], row["success"])
            panel.annotate(f"{row['iteration']}", at, xytext=(6, 5), textcoords="offset points", fontsize=9)
    _frame(panel, f"by iteration, {rows[0]['decoding']}", "mean PRM score of the actions played", "success")
    _legend_below(figure, panel)
    _save(figure, path)


def hacking(curves: Mapping[int, Sequence[Mapping]], path: Path) -> None:
    """How much better the PRM likes the policy, the further it goes from π_{i−1}: a line an update, its last point
    filled. ``curves``: {iteration: points with ``kl`` and ``score``}; of updates that no PRM took part in, none."""
    figure, (panel,) = _panels([None])
    for number, (iteration, points) in enumerate(curves.items()):
        style = {**_style(number), "markerfacecolor": "white"}
        kl, score = ([point[name] for point in points] for name in ("kl", "score"))
        panel.plot(kl, score, linewidth=1, markersize=4, color=style["color"], marker=style["marker"],
                   markerfacecolor="white", label=f"update {iteration}")  # fmt: skip
        panel.plot(kl[-1:], score[-1:], linestyle="", color=style["color"], marker=style["marker"], markersize=7)
    _frame(
        panel, "PRM score against distance", "KL to the policy before, nats an action", "mean PRM score of the actions"
    )
    panel.xaxis.set_major_locator(MaxNLocator(5))
    if curves:
        _legend_below(figure, panel)
    else:
        _nothing(panel, "no PRM took part in an update")
    _save(figure, path)


def scores_by_turn(turns_by_iteration: Mapping[int, Sequence[Mapping]], path: Path) -> None:
    """Do scores still say something late in an episode? By turn, on held-out games: the mean score in episodes that
    were won and lost (above), and how far the score moves from the turn before (below). A column a PRM."""
    columns = len(turns_by_iteration)
    figure, grid = plt.subplots(
        2, columns, figsize=(_WIDTH * 0.8 * columns, _HEIGHT * 1.4), sharex=True, sharey="row", squeeze=False
    )
    for column, (iteration, turns) in enumerate(turns_by_iteration.items()):
        above, below = grid[:, column]
        for number, kind in enumerate(("won", "lost")):
            line = [row for row in turns if row[kind] is not None]
            above.plot(
                [row["turn"] for row in line], [row[kind] for row in line], label=kind, markersize=4, **_style(number)
            )
        line = [row for row in turns if row["change"] is not None]
        below.plot([row["turn"] for row in line], [row["change"] for row in line], markersize=4, **_style(2))
        _frame(
            above, f"PRM {iteration}, {turns[0]['episodes']} held-out episodes", "", "mean score" if not column else ""
        )
        _frame(below, "", "turn", "mean |change of score|" if not column else "")
        above.set_ylim(-0.03, 1.03)
        below.xaxis.set_major_locator(MaxNLocator(integer=True))
    grid[1, 0].set_ylim(bottom=0)  # once all PRMs are drawn: a limit ends the fitting of the axis that they share
    _legend_below(figure, grid[0, 0])
    _save(figure, path)


def climbs(lines: Sequence[Mapping], path: Path) -> None:
    """Success with its 95 % interval against the iteration: a panel a campaign's ``name``, a colour a way of playing, a
    line a ``seed``."""
    names, ways = (list(dict.fromkeys(line[of] for line in lines)) for of in ("name", "decoding"))
    figure, panels = _panels(names)
    for panel, name in zip(panels, names):
        of_name = [line for line in lines if line["name"] == name]
        seeds = sorted({line["seed"] for line in of_name})
        for number, way in enumerate(ways):
            for seed in seeds:
                line = [one for one in of_name if one["decoding"] == way and one["seed"] == seed]
                x = [one["iteration"] + _dodge(number, len(ways)) for one in line]
                _with_interval(panel, x, line, number, way if seed == seeds[0] else "_nolegend_")
        games, runs = of_name[0]["games"], "1 seed" if len(seeds) == 1 else f"{len(seeds)} seeds"
        _frame(panel, f"{name}, {games} games, {runs}", "iteration", "success")
        _by_iteration(panel, of_name)
    _legend_below(figure, panels[0])
    _save(figure, path)


def over_seeds(panels: Mapping[str, Sequence[Mapping]], path: Path, x: str) -> None:
    """A panel a title, and in it a line a row: its ``name``, a dot a seed (``differences``, shares), and the mean with
    its interval over the seeds (``mean``, ``ci_low``, ``ci_high``). ``x`` says what the points are."""
    most = max((len(rows) for rows in panels.values()), default=0)
    size = (_WIDTH * max(len(panels), 1), 0.8 + 0.35 * max(most, 3))
    figure, grid = plt.subplots(1, max(len(panels), 1), figsize=size, sharex=True, squeeze=False)
    for panel, (title, rows) in zip(grid[0], panels.items()):
        for y, row in enumerate(rows):
            seeds = [100 * difference for difference in row["differences"]]
            mean, low, high = (100 * (row["mean"] if row[name] is None else row[name]) for name in _INTERVAL)
            panel.plot(seeds, [y] * len(seeds), "o", color=_COLOURS[0], alpha=0.45, markersize=5)
            panel.errorbar(
                mean, y, xerr=_spread([mean], [low], [high]), fmt="D", color="black", capsize=3, markersize=4
            )
        panel.axvline(0, color="grey", linewidth=1)
        panel.set_yticks(range(len(rows)), [row["name"] for row in rows])
        panel.set_ylim(len(rows) - 0.5, -0.5)
        _frame(panel, title, x, "")
    _save(figure, path)


def search_curves(curves: Mapping[str, Mapping[str, Sequence[Mapping]]], rows: Sequence[Mapping], path: Path) -> None:
    """Success with its 95 % interval against the tokens that both models read: a panel a search, a line a PRM, and
    greedy play as a band. ``curves``: {search: {PRM: rows by tokens}}; ``rows``: the table, with greedy play."""
    (greedy,) = [row for row in rows if row["search"] == "greedy"]
    prms = sorted({prm for lines in curves.values() for prm in lines})
    figure, panels = _panels(list(curves))
    for panel, (search, lines) in zip(panels, curves.items()):
        panel.axhspan(greedy["ci_low"], greedy["ci_high"], color="0.92", zorder=0)
        panel.axhline(greedy["success"], color="0.4", linewidth=1, linestyle="--", label="greedy")
        for prm, line in lines.items():
            number = prms.index(prm)
            x = [row["tokens"] * 1.02 ** (number - (len(prms) - 1) / 2) for row in line]
            _with_interval(panel, x, line, number, prm)
        title = f"{search.replace('_', ' ')}, {greedy['games']} games of {greedy['split']}"
        _frame(panel, title, "tokens read by policy and PRM, a game", "success")
        panel.set_xscale("log", base=2)
        panel.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        panel.tick_params(axis="x", labelrotation=30)
    _legend_below(figure, panels[0])
    _save(figure, path)


def _panels(titles: Sequence) -> tuple:
    """A figure, and a row of panels that share the y axis."""
    figure, grid = plt.subplots(1, len(titles), figsize=(_WIDTH * len(titles), _HEIGHT), sharey=True, squeeze=False)
    return figure, list(grid[0])


def _line(rows: Sequence[Mapping], split: str, decoding: str) -> list[Mapping]:
    return [row for row in rows if row["split"] == split and row["decoding"] == decoding]


def _with_interval(panel, x: Sequence[float], line: Sequence[Mapping], number: int, label: str) -> None:
    success, low, high = ([row[name] for row in line] for name in ("success", "ci_low", "ci_high"))
    panel.errorbar(x, success, yerr=_spread(success, low, high), capsize=3, label=label, **_style(number))


def _spread(value: Sequence[float], low: Sequence[float], high: Sequence[float]) -> list[list[float]]:
    """The arms of error bars; none shorter than 0, which rounding would make of an interval's exact end."""
    return [[max(v - a, 0.0) for v, a in zip(value, low)], [max(b - v, 0.0) for v, b in zip(value, high)]]


def _style(number: int) -> dict:
    return {"color": _COLOURS[number % len(_COLOURS)], "marker": _MARKERS[number % len(_MARKERS)], "linewidth": 1.4}


def _dodge(number: int, lines: int) -> float:
    """Lines side by side, so that their intervals do not lie on each other."""
    return 0.05 * (number - (lines - 1) / 2)


def _by_iteration(panel, rows: Sequence[Mapping]) -> None:
    panel.set_xticks(sorted({row["iteration"] for row in rows}))


def _legend_below(figure, panel) -> None:
    """One legend of the figure, where it covers no point: as many columns as its width holds."""
    lines, labels = panel.get_legend_handles_labels()
    columns = max(1, int(figure.get_figwidth() / (0.9 + 0.11 * max(map(len, labels)))))
    figure.legend(lines, labels, frameon=False, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=columns)


def _nothing(panel, why: str) -> None:
    panel.set_axis_off()
    panel.text(0.5, 0.5, why, ha="center", transform=panel.transAxes)


def _frame(panel, title: str, x: str, y: str) -> None:
    panel.set(title=title, xlabel=x, ylabel=y)
    panel.grid(alpha=0.3)
    panel.spines[["top", "right"]].set_visible(False)
    if y == "success":
        _percent(panel.yaxis)


def _percent(axis) -> None:
    axis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axis.axes.set_ylim(-0.04, 1.04)


def _save(figure, path: Path) -> None:
    for panel in figure.axes:
        panel.label_outer()  # where panels share an axis it is named once
    figure.tight_layout()
    with atomic_write(path) as aside:
        figure.savefig(aside, dpi=120, bbox_inches="tight", metadata={"Software": None})
    plt.close(figure)
