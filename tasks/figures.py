"""The pictures of a campaign, each from rows that a metrics file holds. Same rows, same bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # before pyplot: no display is asked for

import matplotlib.pyplot as plt

from agentprm_core.datasets import whole

_WIDTH, _HEIGHT = 4.6, 3.4


def success_by_iteration(rows: Sequence[Mapping], path: Path) -> None:
    """Success with its interval against the iteration: a panel a split, a line a way of decoding."""
    splits = sorted({row["split"] for row in rows})
    figure, panels = plt.subplots(1, len(splits), figsize=(_WIDTH * len(splits), _HEIGHT), sharey=True, squeeze=False)
    for panel, split in zip(panels[0], splits):
        for number, decoding in enumerate(sorted({row["decoding"] for row in rows})):
            line = [row for row in rows if row["split"] == split and row["decoding"] == decoding]
            success = [row["success"] for row in line]
            spread = [
                [row["success"] - row["ci_low"] for row in line],
                [row["ci_high"] - row["success"] for row in line],
            ]
            panel.errorbar(
                [row["iteration"] + 0.04 * number for row in line],
                success,
                yerr=spread,
                marker="o",
                capsize=3,
                label=decoding,
            )
        _frame(panel, f"{split}, {line[0]['games']} games", "iteration", "success")
        panel.set_xticks(sorted({row["iteration"] for row in rows}))
    panels[0][0].legend(frameon=False)
    _save(figure, path)


def success_by_task_type(rows: Sequence[Mapping], path: Path) -> None:
    """Success of each task type against the iteration; ``rows`` are of one split and one way of decoding."""
    figure, panel = plt.subplots(figsize=(_WIDTH * 1.4, _HEIGHT))
    for kind in sorted({kind for row in rows for kind in row["by_task_type"]}):
        line = [(row["iteration"], row["by_task_type"][kind]["success"]) for row in rows if kind in row["by_task_type"]]
        panel.plot(*zip(*line), marker="o", label=kind)
    _frame(panel, f"{rows[0]['split']}, {rows[0]['decoding']}", "iteration", "success")
    panel.set_xticks([row["iteration"] for row in rows])
    panel.legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    _save(figure, path)


def calibration(bins_by_iteration: Mapping[int, Sequence[Mapping]], path: Path, target: str) -> None:
    """Mean ``target`` against mean score, on games the PRM was not trained on: on the diagonal it is true."""
    figure, panel = plt.subplots(figsize=(_WIDTH, _HEIGHT))
    panel.plot([0, 1], [0, 1], color="0.7", linewidth=1)
    for iteration, bins in bins_by_iteration.items():
        panel.plot([b["score"] for b in bins], [b["q"] for b in bins], marker="o", label=f"PRM {iteration}")
    _frame(panel, "Q calibration, held-out games", "score", target)
    panel.legend(frameon=False)
    _save(figure, path)


def score_against_success(rows: Sequence[Mapping], path: Path) -> None:
    """What the PRM thinks of the policy's play against how often it won: they part where the PRM is hacked."""
    figure, panel = plt.subplots(figsize=(_WIDTH, _HEIGHT))
    for split in sorted({row["split"] for row in rows}):
        line = [row for row in rows if row["split"] == split]
        panel.plot([row["score"] for row in line], [row["success"] for row in line], marker="o", label=split)
        for row in line:
            panel.annotate(
                str(row["iteration"]), (row["score"], row["success"]), xytext=(4, 4), textcoords="offset points"
            )
    _frame(panel, f"by iteration, {rows[0]['decoding']}", "mean PRM score of the actions played", "success")
    panel.legend(frameon=False)
    _save(figure, path)


def _frame(panel, title: str, x: str, y: str) -> None:
    panel.set(title=title, xlabel=x, ylabel=y)
    panel.grid(alpha=0.3)
    panel.spines[["top", "right"]].set_visible(False)
    if y == "success":
        panel.set_ylim(-0.03, 1.03)


def _save(figure, path: Path) -> None:
    figure.tight_layout()
    with whole(path) as aside:
        figure.savefig(aside, dpi=120, bbox_inches="tight", metadata={"Software": None})
    plt.close(figure)
