"""Does a world say what the published environment said? Plays a file of recorded dialogues (JSON lines, .xz or plain).

python -m benchmarks.dialogues --world textcraft --file textcraft_dialogues.jsonl.xz --json

Exits with 1 where something is not as recorded, and where the file cannot be read.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from agentprm_core.arguments import OneLineParser
from agentprm_core.errors import EXPECTED, DataError
from agentprm_core.worlds import world_spec
from agentprm_core.worlds.dialogues import Report, read_records


def main() -> None:
    parser = OneLineParser(prog="python -m benchmarks.dialogues", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--world", required=True, help="a world that has recordings: textcraft, babyai, webshop")
    parser.add_argument("--file", type=Path, required=True, help="of records, a JSON object a line")
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object")
    asked = parser.parse_args()
    try:
        check = _check_of(asked.world)
        records = read_records(asked.file)
        start = time.perf_counter()
        report = check(records)
    except EXPECTED as error:
        sys.exit(f"dialogues: {error}")
    figures = {"world": asked.world, **asdict(report), "seconds": time.perf_counter() - start}
    print(
        f"{asked.world}: {report.dialogues} dialogues, {report.steps} steps, {report.mismatches} mismatches"
        + (f"; the first: {json.dumps(report.first, indent=2)}" if report.first else "")
    )
    if asked.json:
        print(json.dumps(figures))
    sys.exit(1 if report.mismatches else 0)


def _check_of(world: str) -> Callable[[Sequence[dict]], Report]:
    """Raises DataError for a world without recordings."""
    package = world_spec(world).make.__module__.rpartition(".")[0]
    check = None
    if package and find_spec(f"{package}.dialogues"):
        check = getattr(import_module(f"{package}.dialogues"), "check", None)
    if check is None:
        raise DataError(f"--world: {world} has no recorded dialogues; textcraft, babyai and webshop have")
    return check


if __name__ == "__main__":
    main()
