"""What ``make run`` ends with: the table of iterations, where the stages' time went, the pages to look at, and how to
open the UIs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from flows.graph import read_graph
from flows.unsent import send_the_rest
from tasks.frame import layout
from tasks.frame.clock import read_timing
from tasks.frame.params import ParamsError, load_params
from tasks.frame.tracking import campaign_id
from tasks.report.overview import PAGE
from tasks.report.text import iterations_text


def main() -> None:
    """Print them. Raises SystemExit where no campaign is, and where ``compare`` has not run."""
    try:
        params = load_params()
    except ParamsError as error:
        sys.exit(str(error))
    if not layout.ITERATIONS.exists():
        sys.exit(f"{layout.ITERATIONS}: no such file: the stage compare has not run; dvc repro compare")
    send_the_rest(print)
    campaign = campaign_id(params.as_dict())
    timings = {stage.name: read_timing(stage.name, campaign) for stage in read_graph(Path.cwd())}
    print(iterations_text(json.loads(layout.ITERATIONS.read_text()), timings))
    print(f"\nReport:  {layout.REPORTS / PAGE}\nGames:   {layout.GALLERY / 'index.html'}")
    print("Prefect: make ui, then http://127.0.0.1:4200\nMLflow:  make ui, then http://127.0.0.1:5000")


if __name__ == "__main__":
    main()
