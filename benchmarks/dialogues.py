"""Does a world say what the published environment said? Plays a file of recorded dialogues (JSON lines, .xz or plain).

python -m benchmarks.dialogues --world textcraft --file textcraft_dialogues.jsonl.xz --json

TextCraft's recipes and WebShop's products are those of ``TEXTCRAFT_RECIPES`` and ``WEBSHOP_DATA``, of
../shared/data/later beside the repository, or of the file's own folder, whichever is first.
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
        _look_beside(asked.world, asked.file.parent)
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
    check = _of_dialogues(world, "check")
    if check is None:
        raise DataError(f"--world: {world} has no recorded dialogues; textcraft, babyai and webshop have")
    return check


def _look_beside(world: str, folder: Path) -> None:
    """A world that reads a pack may find it in ``folder``."""
    look = _of_dialogues(world, "look_beside")
    if look is not None:
        look(folder)


def _of_dialogues(world: str, name: str) -> Callable | None:
    """What the world's module ``dialogues`` has of this name."""
    package = world_spec(world).make.__module__.rpartition(".")[0]
    if not package or not find_spec(f"{package}.dialogues"):
        return None
    return getattr(import_module(f"{package}.dialogues"), name, None)


if __name__ == "__main__":
    main()
