"""Stage ``compare``: the iterations side by side. Table, paired tests, plots, reports, a gallery of games, and who
competes for champion.

Its table and reports carry seconds, taken from ``.scratch/timings``, and are the only outs that do.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from agentprm_core.comparing import best, choosing, deciding, prm_adds
from tasks.frame import layout
from tasks.frame.champion import CONSIDER, arena, candidate
from tasks.frame.clock import read_timing
from tasks.frame.order import stages_of
from tasks.frame.stage import Stage, run_stage, write_json
from tasks.frame.tracing import LOG_TRACES, traces
from tasks.frame.tracking import PRM_REFUSED
from tasks.report.added import adds_text, champion_text
from tasks.report.text import iterations_text, refused_lines


def work(stage: Stage) -> None:
    """Lay the iterations side by side."""
    from tasks.report import campaign, gallery, overview  # matplotlib takes its time

    iterations = [int(number) for number in stage.params.policies]
    stage.read(*map(layout.outcomes, iterations))
    outcomes = campaign.evaluated(stage.params)
    rows = campaign.table(outcomes, stage.params, stage.campaign)
    write_json(rows, layout.ITERATIONS)
    decide = deciding(rows, stage.params.evaluate.decoding[0])
    pictures = campaign.draw(rows, decide, stage.params)
    with stage.tracking():
        stage.tracker.log_files(*pictures, folder="plots")
    added = prm_adds(outcomes)
    campaign.report(rows, iterations, added, stage.params)
    with stage.clock.lap("gallery"):
        looked = gallery.gallery(stage.params, outcomes, decide)
        gallery.write(looked)
    chosen, told = choosing(outcomes, stage.params.evaluate.decoding[0])
    champion = best(chosen)
    overview.report_page(stage.params, rows, outcomes)
    _crown(stage, outcomes, decide, champion)
    with stage.tracking():
        told_of = traces(looked.games, looked.shown, looked.why)
        stage.tracker.call(LOG_TRACES, traces=told_of, prms=list(looked.prms))
    ran = [name for i in iterations for name in stages_of(i)]
    print(iterations_text(rows, {name: read_timing(name, stage.campaign) for name in ran}), flush=True)
    print(f"\n{adds_text(added, stage.params)}\n\n{champion_text(champion, chosen, told)}", flush=True)
    print(f"report: {layout.REPORTS / overview.PAGE}, games to look at: {layout.GALLERY / 'index.html'}", flush=True)
    with stage.tracking():
        stage.tracker.log_metrics({"champion": champion})
        if refusals := refused_lines(rows):
            stage.tracker.tag(PRM_REFUSED, "; ".join(refusals))


def _crown(stage: Stage, outcomes: pa.Table, decide: Sequence[dict], champion: int) -> None:
    """The policies are registered with others that were measured alike, and the best one competes with theirs."""
    policies = [candidate(outcomes, row, layout.policy(row["iteration"])) for row in decide]
    best_one = next(tags["digest"] for tags in policies if tags["iteration"] == str(champion))
    name = arena(stage.params.measured_in, outcomes, decide[0])
    with stage.tracking():
        stage.tracker.call(CONSIDER, name=name, policies=policies, best=best_one)
        stage.tracker.log_files(layout.ITERATIONS, layout.REPORTS, layout.GALLERY)


if __name__ == "__main__":
    run_stage("compare", work, iterated=False)
