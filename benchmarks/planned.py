"""What ``agentprm plan`` expects of a campaign beside what its stages took.

    python -m benchmarks.planned --campaign DIR --json

DIR is the folder in which the campaign's stages ran, on the CPU of this machine: their timings lie there. Both sides
are processor seconds divided by ``compute.threads``, so other work on the machine hardly counts. What other
processes play (``AGENTPRM_SHARDS``) is not counted: such a stage cannot be held against the plan. A stage that ran in
several iterations has the mean of them. The last line is one JSON object: ``stages`` (``stage``, ``runs``,
``planned_s``, ``took_s``, ``ratio``), ``ratio`` of all these runs together, and ``tflops``, the rate of products
measured here.
"""

from __future__ import annotations

import argparse
import json
import sys
from argparse import Namespace
from contextlib import chdir
from pathlib import Path
from statistics import fmean

from agentprm_core.errors import EXPECTED, DataError
from benchmarks.campaigns import params_of
from tasks.commands.plan_campaign import planned
from tasks.frame.clock import read_timing
from tasks.frame.params import load_params
from tasks.frame.sections import Params
from tasks.frame.tracking import campaign_id
from tasks.report.text import markdown


def held(folder: Path) -> dict:
    """The plan of the campaign in ``folder`` beside its timings.

    Raises DataError where there is no campaign, where it ran on a GPU, and where no stage left a timing.
    """
    params_of(folder)  # says that there is none
    with chdir(folder):
        params = load_params()
        if params.compute.device != "cpu":
            raise DataError(f"compute.device: {params.compute.device} is not allowed: cpu, whose seconds are counted")
        plan = planned(Namespace(profile=[], gpus=1, memory=None, tflops=None))
        rows = [row for stage in plan["stages"] if (row := _beside(stage, params)) is not None]
    if not rows:
        raise DataError(f"--campaign: {folder} has no timing of a stage that trains or plays: did they run here?")
    expected, took = (sum(row["runs"] * row[side] for row in rows) for side in ("planned_s", "took_s"))
    return {"stages": rows, "ratio": expected / took, "tflops": plan["tflops"]}


def _beside(planned: dict, params: Params) -> dict | None:
    """A stage of the plan with what its runs took; None where none of them ran here."""
    name, campaign = planned["stage"], campaign_id(params.as_dict())
    indices = params.policies if name == "evaluate" else params.iterations
    runs = [name] if name == "sft" else [f"{name}@{index}" for index in indices]
    timings = [timing for run in runs if (timing := read_timing(run, campaign)) is not None]
    if not timings:
        return None
    expected = planned["hours"] * 3600
    took = fmean(timing["work_cpu_seconds"] for timing in timings) / params.compute.threads
    return {"stage": name, "runs": len(timings), "planned_s": expected, "took_s": took, "ratio": expected / took}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--campaign", type=Path, required=True, metavar="DIR", help="where its stages ran")
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object")
    asked = parser.parse_args()
    try:
        found = held(asked.campaign)
    except EXPECTED as error:
        sys.exit(f"planned: {error}")
    cells = [
        (row["stage"], row["runs"], f"{row['planned_s']:.0f}", f"{row['took_s']:.0f}", f"{row['ratio']:.2f}")
        for row in found["stages"]
    ]
    print(*markdown(("stage", "runs", "planned, s", "took, s", "planned / took"), cells), sep="\n")
    print(f"planned over taken, all of these runs: {found['ratio']:.2f}, at {found['tflops']:.3g} TFLOP/s of products")
    if asked.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
