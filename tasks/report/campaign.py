"""What a campaign leaves to look at: pictures of its table, and a Markdown report of each iteration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from agentprm_core.comparing import compared
from agentprm_core.datasets import atomic_write, read_table
from agentprm_core.evaluate import OUTCOMES
from agentprm_core.search.decoding_config import decoding
from tasks.frame import layout
from tasks.frame.clock import read_timing
from tasks.frame.order import behind, stages_of
from tasks.frame.sections import Params
from tasks.frame.stage import read_json, write_json
from tasks.report import figures
from tasks.report.added import adds_report
from tasks.report.text import iteration_report

_BESIDE = "[The campaign's report](campaign.html), [games to look at](../gallery/index.html)"
"""What lies beside the Markdown reports."""
PICTURES = ("success", "kinds", "search_gain", "calibration", "scores_by_turn", "scores", "hacking")


def evaluated(params: Params) -> pa.Table:
    """What all policies played, game by game."""
    return pa.concat_tables(read_table(layout.outcomes(int(number)), OUTCOMES) for number in params.policies)


def table(outcomes: pa.Table, params: Params, of_campaign: str) -> list[dict]:
    """Rows of the iterations' table: those of :func:`agentprm_core.comparing.compared`, with :func:`spent` and
    ``refused``."""
    rows = compared(outcomes)
    for row in rows:
        row |= {**spent(row, params, of_campaign), "refused": refused(row["iteration"])}
    return rows


def spent(row: Mapping, params: Params, of_campaign: str) -> dict[str, float | None]:
    """What it took until this row could be played, evaluations left out: ``episodes_played`` and ``tokens_trained`` of
    all stages behind its policy, and behind the PRM that chooses in its search; ``seconds`` of their wall-clock, None
    where one of them did not run here in this campaign."""
    needs_prm = decoding(row["decoding"]).needs_prm
    prm = params.policies[str(row["iteration"])].prm if needs_prm else None
    stages = behind(params.iterations, row["iteration"], prm)
    figures = [read_json(layout.metrics(name.replace("@", "-"))) for name in stages]
    timings = [timing for name in stages if (timing := read_timing(name, of_campaign)) is not None]
    return {
        **{name: sum(of.get(name, 0) for of in figures) for name in ("episodes_played", "tokens_trained")},
        "seconds": sum(timing["seconds"] for timing in timings) if len(timings) == len(stages) else None,
    }


def refused(iteration: int) -> str | None:
    """What is said where the PRM of this iteration was refused, and its policy is the one before."""
    return read_json(layout.metrics(f"policy-{iteration}")).get("refused") if iteration else None


def draw(rows: Sequence[dict], deciding: Sequence[dict], params: Params) -> list[Path]:
    """The pictures' paths. ``deciding``: the rows of one split and way of playing."""
    prms = {int(i): read_json(layout.metrics(f"prm-{i}")) for i in params.iterations}
    target = next(iter(prms.values()))["measured_as"]
    pictures = {name: layout.PLOTS / f"{name}.png" for name in PICTURES}
    figures.success_by_iteration(rows, pictures["success"])
    figures.success_by_kind(deciding, pictures["kinds"])
    figures.gain_of_search([row for row in rows if row["over_policy"]], pictures["search_gain"])
    bins = {i: prm["validation"]["calibration"] for i, prm in prms.items()}
    figures.calibration(bins, pictures["calibration"], target)
    figures.scores_by_turn({i: prm["by_turn"] for i, prm in prms.items()}, pictures["scores_by_turn"])
    same_way = [row for row in rows if row["decoding"] == deciding[0]["decoding"]]
    figures.score_against_success(same_way, pictures["scores"])
    figures.hacking(followed(params), pictures["hacking"])
    series: dict[int, dict] = {}
    for row in rows:
        point = series.setdefault(row["iteration"], {"iteration": row["iteration"]})
        point[f"{row['split']} {row['decoding']}"] = row["success"]
    write_json(list(series.values()), layout.PLOTS / "success.json")
    return list(pictures.values())


def report(rows: Sequence[dict], iterations: Sequence[int], added: Sequence[dict], params: Params) -> None:
    """A Markdown file an iteration. ``added``: rows of :func:`agentprm_core.comparing.prm_adds`."""
    with atomic_write(layout.REPORTS) as folder:
        folder.mkdir()
        for i in iterations:
            slugs = [name.replace("@", "-") for name in stages_of(i) if not name.startswith("evaluate")]
            figures = {slug: read_json(layout.metrics(slug)) for slug in slugs}
            text = iteration_report(i, rows, figures, adds_report(i, added, params))
            (folder / f"iteration-{i}.md").write_text(f"{text}{_BESIDE}\n")


def followed(params: Params) -> dict[int, list[dict]]:
    """{iteration: points of its update}, of updates that the PRM took part in."""
    return {int(i): points for i in params.iterations if (points := _followed(i))}


def _followed(iteration: str) -> list[dict]:
    """Points of an update with the PRM's score and the KL to the policy before: of the monitor, whose states stay the
    same, where it looked, else of the training curve; none of an update that no PRM took part in."""
    watched = read_json(layout.metrics(f"policy-{iteration}")).get("monitor")
    points = watched["looks"] if watched else read_json(layout.PLOTS / f"policy-{iteration}.json")
    return [point for point in points if "kl" in point and "score" in point]
