"""How benchmarks answer: what people read, then one JSON object as the last line; what is missing, in a line."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

from transformers.utils import logging

from agentprm_core.arguments import OneLineParser
from agentprm_core.errors import EXPECTED


def campaign_parser(name: str, doc: str | None) -> argparse.ArgumentParser:
    """The options of every benchmark that reads a campaign; ``name``: the benchmark's."""
    parser = OneLineParser(
        prog=f"python -m benchmarks.{name}", description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--campaign", type=Path, default=Path(), help="its folder (default: this one)")
    add_json(parser)
    return parser


def add_json(parser: argparse.ArgumentParser) -> None:
    """The option that :func:`answer` is asked by."""
    parser.add_argument("--json", action="store_true", help="only the JSON line")


def answer(name: str, find: Callable[[], dict], told: Callable[[dict], str], *, only_json: bool) -> None:
    """Print what ``find`` returns: as ``told`` unless ``only_json``, then as JSON.

    Raises:
        SystemExit: ``find`` raised what :data:`agentprm_core.errors.EXPECTED` has; the message begins with the
            benchmark's name.
    """
    if not sys.stderr.isatty():
        logging.disable_progress_bar()
    try:
        found = find()
    except EXPECTED as error:
        sys.exit(f"{name}: {error}")
    if not only_json:
        print(told(found))
    print(json.dumps(found))
