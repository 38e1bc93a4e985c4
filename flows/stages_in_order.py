"""A campaign on a machine that is lent for minutes, and has neither DVC nor MLflow: its stages, one after another.

    dvc repro games demos                                                # where these are installed
    python -m flows.stages_in_order --begin sft --minutes 9 --out gpu    # in a copy of that folder, on the lent one

Each stage is ``python -m tasks.STAGE`` in a process of its own, with the parameters of ``params.yaml``. A stage that
has ended is marked in ``.scratch`` and is not run again with the same parameters. Changed code leaves the mark.
When the minutes are over the stage is ended. The next call goes on from what it has kept. After each stage ``--out``
has what the stages printed, ``stages.log``, and figures, curves and reports in one archive, ``figures.tar.gz``.

Beside torch, transformers, numpy, pyarrow, pandas, matplotlib and psutil the stages need polars and pydantic. Without
Great Expectations they decide the gates themselves (:mod:`tasks.frame.plain_checks`).

The last line is one JSON object: ``ended``, the seconds of each stage that has; ``stopped``, the stage that has not, or
null; ``failed``, whether it failed by itself; ``policies``, the figures of each evaluated policy.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path

from agentprm_core.arguments import above_zero
from flows.leash import leashed
from tasks.frame import layout
from tasks.frame.order import all_stages
from tasks.frame.params import ParamsError, load_params
from tasks.frame.sections import Params
from tasks.frame.stage import read_json, write_json
from tasks.frame.tracking import campaign_id

LOG, FIGURES = "stages.log", "figures.tar.gz"
SHOWN = (layout.METRICS, layout.PLOTS, layout.REPORTS)


def command(stage: str) -> list[str]:
    """What runs ``rollout@1``."""
    task, _, number = stage.partition("@")
    return [sys.executable, "-m", f"tasks.{task}", *(["--iteration", number] if number else [])]


def run(params: Params, begin: str, until: float, out: Path) -> dict:
    """Run what is missing from the stage ``begin`` on until the clock (``time.monotonic``) says ``until``; the report
    of the last line.

    Raises:
        ParamsError: the parameters have no such stage.
    """
    stages = list(all_stages(params))
    if begin not in stages:
        raise ParamsError(f"--begin: {begin!r} is not allowed: params.yaml has {', '.join(stages)}")
    marks = layout.SCRATCH / f"in-order-{campaign_id(params.as_dict())}.json"
    ended: dict[str, float] = read_json(marks) if marks.exists() else {}
    out.mkdir(parents=True, exist_ok=True)
    stopped, failed = None, False
    for stage in stages[stages.index(begin) :]:
        if stage in ended:
            continue
        begun = time.monotonic()
        code = attempt(stage, until - begun, out / LOG)
        show(out)
        if code != 0:
            stopped, failed = stage, code is not None
            break
        ended[stage] = round(time.monotonic() - begun, 1)
        write_json(ended, marks)
        print(f"{stage}: {ended[stage]:.1f} s", flush=True)
    in_order = {stage: ended[stage] for stage in stages if stage in ended}
    return {"ended": in_order, "stopped": stopped, "failed": failed, "policies": _policies(params)}


def attempt(stage: str, seconds: float, log: Path) -> int | None:
    """Run a stage; what it prints is added to ``log``. Its exit status; None where so many seconds are over before it
    has one, and the stage was ended."""
    if seconds <= 0:
        return None
    with log.open("a") as lines, leashed(command(stage), os.environ, stdout=lines) as process:
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None


def show(out: Path) -> None:
    """Put figures, curves and reports that are there into the archive."""
    with tarfile.open(out / FIGURES, "w:gz") as archive:
        for folder in SHOWN:
            if folder.exists():
                archive.add(folder)


def _policies(params: Params) -> dict[str, dict]:
    paths = {number: layout.headline(int(number)) for number in params.policies}
    return {number: read_json(path) for number, path in paths.items() if path.exists()}


def main() -> None:
    """Run, and print one JSON object as the last line. Exit code 1 where a stage failed."""
    parser = argparse.ArgumentParser(prog="python -m flows.stages_in_order", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for figures and what is printed")
    parser.add_argument("--begin", default="games", metavar="STAGE", help="what comes before is there (default games)")
    parser.add_argument("--minutes", type=above_zero, default=9.0, help="the running stage is then ended (default 9)")
    asked = parser.parse_args()
    try:
        report = run(load_params(), asked.begin, time.monotonic() + 60 * asked.minutes, asked.out)
    except ParamsError as error:
        sys.exit(str(error))
    print(json.dumps(report))
    if report["failed"]:
        sys.exit(f"{report['stopped']} failed: its last lines are in {asked.out / LOG}")


if __name__ == "__main__":
    main()
