"""Success against compute: one policy in every search, under several PRMs, on the same games (paper B's figure).

    agentprm search-curves --policy DIR --games DIR --split valid_seen --out curves \
        --prm agentprm_b=DIR --prm agentprm_a=DIR --prm orm=DIR --prm pvm=DIR
    agentprm search-curves --policy DIR --games DIR --split valid_seen --out curves --likelihood --prm agentprm_b=DIR
    agentprm search-curves --policy DIR --games DIR --split valid_seen --out headroom --oracle 8

The first PRM is held against the others. Greedy play and sampling are measured once; a search with N = 1 or 1 × 1 is
sampling, so sampling is the first point of every curve. ``--likelihood`` adds a rival named ``likelihood``, the
policy's own in the PRM's place in every search. Of whole episodes it takes the likeliest. ``--oracle`` adds Best-of-N
under the true Q, measured by playing on from each candidate: the headroom of choosing, at a price no player can pay, so
in no comparison of compute. ``--prior`` is the weight of a sample's likelihood beside its score, as ``critic.prior``
is; 0 leaves it out. A cell (a PRM in one search at one size) is kept in OUT/cells under a digest of what decides it: a
run that was killed goes on, and another PRM or size adds its cells alone.

Writes ``outcomes.parquet`` (game by game; ``method`` is the PRM's name), ``curves.json`` (the table: success, its
interval, paired tests against greedy play, sampling and the first PRM, compute; and the efficiency against each rival)
and ``curves.png``. A table of each search is printed in Markdown.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from agentprm_core.arguments import OneLineParser, at_least, called, count, listed, repeated
from agentprm_core.errors import EXPECTED
from tasks.commands.standalone import playing_arguments


def main(prog: str = "python -m tasks.commands.search_curves") -> None:
    parser = _parser(prog)
    arguments = parser.parse_args()
    if not arguments.prm and arguments.oracle is None and not arguments.likelihood:
        parser.error("nobody chooses: --prm NAME=FOLDER, --oracle PLAYS or --likelihood, or several of them")
    names = [name for name, _ in arguments.prm]
    if (place := repeated(names)) is not None:
        parser.error(f"--prm: {names[place]!r} is there twice: give each PRM a name of its own")
    widest = max(width for width, _ in arguments.beams)
    if widest > arguments.slots:
        parser.error(f"--beams: a beam of width {widest} needs as many --slots, not {arguments.slots}")
    from tasks.commands.curves import run  # loads torch, which --help does not wait for

    try:
        run(arguments)
    except EXPECTED as error:
        sys.exit(f"{called(prog)}: {error}")


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = OneLineParser(prog=prog, description=(__doc__ or "").split("\n")[0])
    playing_arguments(parser)
    parser.add_argument("--policy", type=Path, required=True, help="checkpoint folder, or shipped:NAME")
    parser.add_argument(
        "--prm",
        type=_named,
        action="append",
        default=[],
        help="NAME=checkpoint folder, or NAME=shipped:NAME; repeatable",
    )
    parser.add_argument(
        "--oracle", type=count, metavar="PLAYS", help="Best-of-N under the true Q, of PLAYS a candidate"
    )
    parser.add_argument("--likelihood", action="store_true", help="every search by the policy's own likelihood too")
    parser.add_argument("--out", type=Path, required=True, help="folder of the cells, the table and the picture")
    parser.add_argument(
        "--best-of", type=listed(at_least(2)), default=(2, 4, 8, 16), help="N; 1 is sampling (default 2,4,8,16)"
    )
    parser.add_argument("--beams", type=listed(_size), default=((2, 2), (4, 4), (8, 8)), help="(default 2x2,4x4,8x8)")
    parser.add_argument(
        "--path-prior",
        action="store_true",
        help="trajectories and beams are weighed by log π̂ of all their actions, not the last's; trajectories also by "
        "the mean of their scores",
    )
    return parser


def _named(value: str) -> tuple[str, Path]:
    from tasks.commands.curves_table import ALONE, ORACLE, UNTAUGHT

    name, _, path = value.partition("=")
    if not path or name in (ALONE, ORACLE, UNTAUGHT) or not re.fullmatch(r"[\w.-]+", name):
        raise argparse.ArgumentTypeError(
            f"{value!r} is not NAME=FOLDER (of letters, digits, . _ -; not {ALONE!r}, {ORACLE!r}, {UNTAUGHT!r})"
        )
    return name, Path(path)


def _size(value: str) -> tuple[int, int]:
    if not re.fullmatch(r"[1-9]\d*x[1-9]\d*", value):
        raise argparse.ArgumentTypeError(f"{value!r} is not like 4x8: nodes kept x actions drawn")
    kept, drawn = map(int, value.split("x"))
    if (kept, drawn) == (1, 1):
        raise argparse.ArgumentTypeError("1x1 is sampling: keep or draw more than 1")
    return kept, drawn


if __name__ == "__main__":
    main()
