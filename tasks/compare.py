"""Stage ``compare``: the iterations side by side. Table, paired tests, plots, reports, and the champion in MLflow.

Its table and reports carry seconds, taken from ``.scratch/timings``, and are the only outs that do.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pyarrow as pa

from agentprm_core.datasets import atomic_write, read_table
from agentprm_core.evaluate import OUTCOMES, paired_test, summary, wins
from tasks.frame import layout
from tasks.frame.clock import read_timing
from tasks.frame.lineage import parents
from tasks.frame.params import decoding_name
from tasks.frame.stage import Stage, read_json, run_stage, write_json
from tasks.report.text import iteration_report, iterations_text

ONCE = ("games", "demos", "sft")
"""Stages whose time is iteration 0's, with its evaluation."""
PLAIN = ("greedy", "sample")
"""How a policy plays alone, the one that searches are held against first."""
LOOP = ("rollout", "label", "prm", "search", "policy")
PICTURES = ("success", "kinds", "search_gain", "calibration", "scores_by_turn", "scores", "hacking")


def work(stage: Stage) -> None:
    """Lay the iterations side by side."""
    iterations = [int(number) for number in stage.params.policies]
    outcomes = pa.concat_tables(read_table(layout.outcomes(i), OUTCOMES) for i in iterations)
    rows = compared(outcomes)
    for row in rows:
        row["seconds"] = _seconds(row["iteration"])
    write_json(rows, layout.ITERATIONS)
    _draw(rows, stage)
    _report(rows, iterations)
    champion = best(_deciding(rows, stage))
    _crown(stage, champion)
    print(iterations_text(rows, {name: read_timing(name) for i in iterations for name in _stages(i)}), flush=True)
    print(f"\nchampion: iteration {champion}", flush=True)
    with stage.tracking():
        stage.tracker.log_metrics({"champion": champion})


def compared(outcomes: pa.Table) -> list[dict]:
    """Rows of the table. ``paired`` is the test against the iteration before on the same games, or None. For searches
    ``over_policy`` is the test against the policy's own play, ``policy_decoding``: greedy, or sampled where it was not
    played greedily; both None for the other rows, and where neither was played."""
    rows = summary(outcomes)
    for row in rows:
        same = {name: row[name] for name in ("split", "constrained")}
        won = wins(outcomes, iteration=row["iteration"], decoding=row["decoding"], **same)
        before = wins(outcomes, iteration=row["iteration"] - 1, decoding=row["decoding"], **same)
        row["paired"] = asdict(paired_test(before, won)) if before else None
        row["over_policy"] = row["policy_decoding"] = None
        if row["decoding"] in PLAIN:
            continue
        for plain in PLAIN:
            if alone := wins(outcomes, iteration=row["iteration"], decoding=plain, **same):
                row |= {"over_policy": asdict(paired_test(alone, won)), "policy_decoding": plain}
                break
    return rows


def best(rows: list[dict]) -> int:
    """The iteration with the highest success; the earliest of equals."""
    return max(rows, key=lambda row: (row["success"], -row["iteration"]))["iteration"]


def _deciding(rows: list[dict], stage: Stage) -> list[dict]:
    """The rows of the split and decoding that params.yaml decides by."""
    section, ways = stage.params.compare, stage.params.evaluate
    decoding = decoding_name(section.decoding, ways.n, ways.beam.width, ways.beam.samples)
    return [row for row in rows if row["split"] == section.split and row["decoding"] == decoding]


def _stages(iteration: int) -> list[str]:
    made = [f"{name}@{iteration}" for name in LOOP] if iteration else list(ONCE)
    return [*made, f"evaluate@{iteration}"]


def _seconds(iteration: int) -> float | None:
    """Wall-clock of the stages that made and measured this policy; None where one of them never ran here."""
    timings = [read_timing(name) for name in _stages(iteration)]
    return None if None in timings else sum(timing["seconds"] for timing in timings)


def _draw(rows: list[dict], stage: Stage) -> None:
    from tasks.report import figures

    deciding = _deciding(rows, stage)
    prms = {int(i): read_json(layout.metrics(f"prm-{i}")) for i in stage.params.iterations}
    target = "share of expert turns" if stage.params.prm.loss == "inverse" else "measured return"
    pictures = {name: layout.PLOTS / f"{name}.png" for name in PICTURES}
    figures.success_by_iteration(rows, pictures["success"])
    figures.success_by_kind(deciding, pictures["kinds"])
    figures.gain_of_search([row for row in rows if row["over_policy"]], pictures["search_gain"])
    figures.calibration(
        {i: prm["validation"]["calibration"] for i, prm in prms.items()}, pictures["calibration"], target
    )
    figures.scores_by_turn({i: prm["by_turn"] for i, prm in prms.items()}, pictures["scores_by_turn"])
    same_way = [row for row in rows if row["decoding"] == deciding[0]["decoding"]]
    figures.score_against_success(same_way, pictures["scores"])
    figures.hacking({int(i): points for i in stage.params.iterations if (points := _followed(i))}, pictures["hacking"])
    series: dict[int, dict] = {}
    for row in rows:
        point = series.setdefault(row["iteration"], {"iteration": row["iteration"]})
        point[f"{row['split']} {row['decoding']}"] = row["success"]
    write_json(list(series.values()), layout.PLOTS / "success.json")
    with stage.tracking():
        stage.tracker.log_files(*pictures.values(), folder="plots")


def _followed(iteration: str) -> list[dict]:
    """Points of an update with the PRM's score and the KL to the policy before: of the monitor, whose states stay the
    same, where it looked, else of the training curve; none of an update that no PRM took part in."""
    watched = read_json(layout.metrics(f"policy-{iteration}")).get("monitor")
    points = watched["looks"] if watched else read_json(layout.PLOTS / f"policy-{iteration}.json")
    return [point for point in points if "kl" in point and "score" in point]


def _report(rows: list[dict], iterations: list[int]) -> None:
    with atomic_write(layout.REPORTS) as folder:
        folder.mkdir()
        for i in iterations:
            slugs = [name.replace("@", "-") for name in _stages(i) if not name.startswith("evaluate")]
            text = iteration_report(i, rows, {slug: read_json(layout.metrics(slug)) for slug in slugs})
            (folder / f"iteration-{i}.md").write_text(text)


def _crown(stage: Stage, champion: int) -> None:
    from agentprm_core.policy.models import checkpoint_digest

    folder = layout.policy(champion)
    digest = checkpoint_digest(folder)
    with stage.tracking():
        if not stage.tracker.registered(digest):  # its outs came from a cache, or the database is new
            stage.tracker.register_policy(folder, digest, champion, parents(stage.params, champion))
        stage.tracker.crown(digest)
        stage.tracker.log_files(layout.ITERATIONS, Path(layout.REPORTS))


if __name__ == "__main__":
    run_stage("compare", work, iterated=False)
