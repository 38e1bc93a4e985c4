"""Does a world say what the published environment said? Plays a file of recorded dialogues (JSON lines, .xz or plain).

python -m benchmarks.dialogues --world textcraft --file textcraft_dialogues.jsonl.xz --json
"""

from __future__ import annotations

import argparse
import json
import lzma
import sys
import time
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

from agentprm_core.errors import DataError
from agentprm_core.worlds import world_spec


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dialogues", description=__doc__.split("\n")[0])
    parser.add_argument("--world", required=True, help="a world that has recordings: textcraft, babyai, webshop")
    parser.add_argument("--file", type=Path, required=True, help="of records, a JSON object a line")
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object")
    asked = parser.parse_args()
    try:
        package = world_spec(asked.world).make.__module__.rpartition(".")[0]
        check = import_module(f"{package}.dialogues").check
        opened = lzma.open if asked.file.suffix == ".xz" else open
        with opened(asked.file, "rt") as lines:
            records = [json.loads(line) for line in lines]
        start = time.perf_counter()
        report = check(records)
    except (DataError, ModuleNotFoundError, FileNotFoundError) as error:
        sys.exit(f"dialogues: {error}")
    figures = {"world": asked.world, **asdict(report), "seconds": time.perf_counter() - start}
    print(
        f"{asked.world}: {report.dialogues} dialogues, {report.steps} steps, {report.mismatches} mismatches"
        + (f"; the first: {json.dumps(report.first, indent=2)}" if report.first else "")
    )
    if asked.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
