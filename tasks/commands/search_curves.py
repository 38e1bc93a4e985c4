"""Success against compute: one policy in every search, under several PRMs, on the same games (paper B's figure).

    python -m tasks.commands.search_curves --policy DIR --games DIR --split valid_seen --out curves \
        --prm agentprm_b=DIR --prm agentprm_a=DIR --prm orm=DIR --prm pvm=DIR
    python -m tasks.commands.search_curves --policy DIR --games DIR --split valid_seen --out headroom --oracle 8

The first PRM is held against the others. Greedy play and sampling are measured once; a search with N = 1 or 1 × 1 is
sampling, so sampling is the first point of every curve. ``--oracle`` adds Best-of-N under the true Q, measured by
playing on from each candidate: the headroom of choosing, at a price no player can pay, so in no comparison of compute.
``--prior`` is the weight of a sample's likelihood beside its score, as ``critic.prior`` is; 0 leaves it out. A cell
(a PRM in one search at one size) is kept in OUT/cells under a digest of what decides it: a run that was killed goes on,
and another PRM or size adds its cells alone.

Writes ``outcomes.parquet`` (game by game; ``method`` is the PRM's name), ``curves.json`` (the table: success, its
interval, paired tests, compute; and the efficiency against each rival) and ``curves.png``.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from pathlib import Path

import pyarrow as pa

from agentprm_core.datasets import write_table
from agentprm_core.errors import EXPECTED
from agentprm_core.evaluate import COMPUTE, OUTCOMES, outcomes_table, paired_test, summary, wins
from agentprm_core.kept import kept
from agentprm_core.policy.models import Checkpoint, load_checkpoint, playing_dtype, require_world
from agentprm_core.search.decoding_config import DecodingConfig
from agentprm_core.search.efficiency import efficiency
from agentprm_core.search.playing import (
    Search,
    best_of_each_game,
    play_games,
    play_headroom,
    play_trajectories,
    search_digest,
)
from agentprm_core.types import Episode, Game
from agentprm_core.worlds import world_spec
from agentprm_core.worlds.published import find_games
from tasks.commands.standalone import playing_arguments, search_from, settle_world
from tasks.frame.quiet import quiet
from tasks.frame.stage import write_json
from tasks.report.text import aligned

ALONE = "policy"
"""In the PRM's place where none chooses."""
ORACLE = "oracle"
"""In its place where the true Q does."""
SEARCHES = ("best_of_n", "best_trajectory", "beam")
BUDGETS = ("tokens", "generated")
"""What compute is counted in: tokens that both models read, or tokens of all sampled actions; a game."""


@dataclass(frozen=True)
class Cell:
    """One way of playing under one PRM."""

    prm: str
    search: Search
    plays: int = 0
    """Of the oracle: continuations of each candidate."""


def plan(
    prms: Sequence[str],
    search: Search,
    best_of: Sequence[int],
    beams: Sequence[tuple[int, int]],
    plays: int | None,
) -> list[Cell]:
    """Every cell, the cheap ones first. ``plays``: of the oracle, None for none. Those that no prior decides have none,
    so that another prior keeps them."""
    plain = replace(search, prior=0.0)
    alone = [Cell(ALONE, replace(plain, way=DecodingConfig(method))) for method in ("greedy", "sample")]
    sizes = [replace(search, way=DecodingConfig("best_of_n", n=n)) for n in best_of]
    sizes += [replace(plain, way=DecodingConfig("best_trajectory", n=n)) for n in best_of]
    sizes += [replace(search, way=DecodingConfig("beam", width=n, samples=m)) for n, m in beams]
    oracle = [Cell(ORACLE, size, plays) for size in sizes if size.way.method == "best_of_n" and plays]
    return alone + [Cell(prm, size) for size in sizes for prm in prms] + oracle


def measure(
    cells: Sequence[Cell],
    policy: Checkpoint,
    prms: Mapping[str, Checkpoint],
    games: Sequence[Game],
    split: str,
    seed: int,
    folder: Path,
) -> pa.Table:
    """Outcomes of all cells. One that ``folder`` has from before is read, not played; trajectories are played once
    for all PRMs, whose cells of a size come one after another."""
    tables = []
    trajectories = lru_cache(maxsize=1)(lambda search: play_trajectories(policy, games, search, seed))
    for number, cell in enumerate(cells, 1):
        prm, began = prms.get(cell.prm), time.perf_counter()
        digest = search_digest(policy, prm, games, cell.search, seed, cell.plays)
        path = folder / f"{cell.prm}-{cell.search.name}-{digest}.parquet"
        old = path.exists()
        tables.append(kept(path, OUTCOMES, partial(_played, cell, policy, prm, games, split, seed, trajectories)))
        name = f"[{number}/{len(cells)}] {cell.search.name} {cell.prm}"
        _say(name, tables[-1], None if old else time.perf_counter() - began)
    return pa.concat_tables(tables)


def table(outcomes: pa.Table, cells: Sequence[Cell]) -> list[dict]:
    """One row a cell: the figures of :func:`agentprm_core.evaluate.summary`, ``prm``, ``search`` (its method),
    ``tokens`` and the paired tests ``v_greedy`` and ``v_sample`` on the same games."""
    method = {cell.search.name: cell.search.way.method for cell in cells}
    alone = {method: wins(outcomes, method=ALONE, decoding=method) for method in ("greedy", "sample")}
    rows = []
    for row in summary(outcomes):
        won = wins(outcomes, method=row["method"], decoding=row["decoding"])
        tests = {f"v_{method}": asdict(paired_test(before, won)) for method, before in alone.items()}
        named = {"prm": row.pop("method"), "search": method[row["decoding"]]}
        rows.append(named | row | tests | {"tokens": row["policy_read"] + row["prm_read"]})
    return sorted(rows, key=lambda row: (row["search"], row["prm"], row["tokens"]))


def efficiencies(rows: Sequence[Mapping], first: str) -> list[dict]:
    """How ``first`` stands to every other PRM in each search and each kind of budget."""
    found = []
    for search in SEARCHES:
        curves = curves_of(rows, search)
        for rival in sorted(curves.keys() - {first, ORACLE}):
            for budget in BUDGETS:
                ours, theirs = ([(row[budget], row["success"]) for row in curves[name]] for name in (first, rival))
                found.append({"search": search, "rival": rival, "budget": budget} | efficiency(ours, theirs))
    return found


def curves_of(rows: Sequence[Mapping], search: str) -> dict[str, list[Mapping]]:
    """{PRM: rows by tokens} of one search, each from sampling on."""
    sampling = [row for row in rows if row["search"] == "sample"]
    of = [row for row in rows if row["search"] == search]
    return {prm: sampling + [row for row in of if row["prm"] == prm] for prm in sorted({row["prm"] for row in of})}


def text(rows: Sequence[Mapping], compared: Sequence[Mapping]) -> str:
    """What is printed: the table, then the efficiencies."""
    head = ("search", "PRM", "success", "95 % interval", "v. greedy", "p", "v. sample", "p")
    head += ("generated", "policy reads", "PRM reads", "world steps")
    lines = [
        [
            row["decoding"], row["prm"], f"{row['success']:.1%}", f"{row['ci_low']:.1%} – {row['ci_high']:.1%}",
            *_tested(row["v_greedy"]), *_tested(row["v_sample"]),
            *(f"{row[name]:.0f}" for name in COMPUTE),
        ]
        for row in rows
    ]  # fmt: skip
    than = ("search", "rival", "counted in", "rival's best", "rival's compute", "compute", "times less")
    against = []
    for row in compared:
        ours = ("never", "") if row["times"] is None else (f"{row['compute']:.0f}", f"{row['times']:.2f}")
        rivals = (f"{row['rival_best']:.1%}", f"{row['rival_compute']:.0f}")
        against.append([row["search"], row["rival"], row["budget"], *rivals, *ours])
    return "\n\n".join([aligned(head, lines), *([aligned(than, against)] if against else [])])


def main(prog: str = "python -m tasks.commands.search_curves") -> None:
    parser = _parser(prog)
    arguments = parser.parse_args()
    if not arguments.prm and arguments.oracle is None:
        parser.error("nobody chooses: --prm NAME=FOLDER, --oracle PLAYS, or both")
    if arguments.oracle is not None and arguments.oracle < 1:
        parser.error(f"--oracle: a value needs at least one play, not {arguments.oracle}")
    widest = max(width for width, _ in arguments.beams)
    if widest > arguments.slots:
        parser.error(f"--beams: a beam of width {widest} needs as many --slots, not {arguments.slots}")
    try:
        run(arguments)
    except EXPECTED as error:
        sys.exit(f"search_curves: {error}")


def run(arguments: argparse.Namespace) -> None:
    """Measure what the command line says, write and print it."""
    from tasks.report.figures import search_curves

    quiet()
    settle_world(arguments)
    how = {"device": arguments.device, "dtype": playing_dtype(arguments.precision)}
    policy = load_checkpoint(arguments.policy, **how)
    prms = {name: load_checkpoint(path, kind="prm", **how) for name, path in arguments.prm}
    for source, checkpoint in [(arguments.policy, policy), *((name, prms[name]) for name in prms)]:
        require_world(checkpoint, source, world_spec(arguments.world).name)
    games = find_games(arguments.world, arguments.games, arguments.split, arguments.limit)
    search = search_from(arguments, policy.model.config.max_position_embeddings, DecodingConfig("sample"))
    cells = plan(list(prms), search, arguments.best_of, arguments.beams, arguments.oracle)
    outcomes = measure(cells, policy, prms, games, arguments.split, arguments.seed, arguments.out / "cells")
    rows = table(outcomes, cells)
    compared = efficiencies(rows, next(iter(prms))) if prms else []
    write_table(outcomes, arguments.out / "outcomes.parquet")
    digests = {"policy": policy.digest, "prms": {name: prm.digest for name, prm in prms.items()}}
    write_json(
        {"rows": rows, "efficiency": compared, "search": asdict(search), **digests}, arguments.out / "curves.json"
    )
    curves = {search: of for search in SEARCHES if (of := curves_of(rows, search))}
    search_curves(curves, rows, arguments.out / "curves.png")
    print(text(rows, compared), flush=True)


def _played(
    cell: Cell,
    policy: Checkpoint,
    prm: Checkpoint | None,
    games: Sequence[Game],
    split: str,
    seed: int,
    trajectories: Callable[[Search], Sequence[Episode]],
) -> pa.Table:
    if cell.plays:
        episodes = play_headroom(policy, games, cell.search, seed, cell.plays)
    elif cell.search.way.method == "best_trajectory" and prm is not None:
        episodes = best_of_each_game(trajectories(cell.search), prm)
    else:
        episodes = play_games(policy, prm, games, cell.search, seed)
    return outcomes_table(
        episodes,
        games,
        iteration=0,
        method=cell.prm,
        split=split,
        decoding=cell.search.name,
        constrained=cell.search.settings.constrained,
        seed=seed,
        policy=policy.digest,
    )


def _say(name: str, outcomes: pa.Table, seconds: float | None) -> None:
    (row,) = summary(outcomes)
    took = "kept" if seconds is None else f"{seconds:.0f} s"
    tokens = row["policy_read"] + row["prm_read"]
    print(f"{name}: {row['success']:.1%} of {row['games']}, {tokens:.0f} tokens a game, {took}", flush=True)


def _tested(paired: Mapping) -> tuple[str, str]:
    return f"{100 * paired['difference']:+.1f}", f"{paired['p_value']:.3g}"


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=prog, description=(__doc__ or "").split("\n")[0])
    playing_arguments(parser)
    parser.add_argument("--policy", type=Path, required=True, help="checkpoint folder, or shipped:NAME")
    parser.add_argument(
        "--prm",
        type=_named,
        action="append",
        default=[],
        help="NAME=checkpoint folder, or NAME=shipped:NAME; repeatable",
    )
    parser.add_argument("--oracle", type=int, metavar="PLAYS", help="Best-of-N under the true Q, of PLAYS a candidate")
    parser.add_argument("--out", type=Path, required=True, help="folder of the cells, the table and the picture")
    parser.add_argument("--best-of", type=_numbers, default=[2, 4, 8, 16], help="N, more than 1 (default 2,4,8,16)")
    parser.add_argument("--beams", type=_sizes, default=[(2, 2), (4, 4), (8, 8)], help="(default 2x2,4x4,8x8)")
    return parser


def _named(value: str) -> tuple[str, Path]:
    name, _, path = value.partition("=")
    if not path or name in (ALONE, ORACLE) or not re.fullmatch(r"[\w.-]+", name):
        raise argparse.ArgumentTypeError(
            f"{value!r} is not NAME=FOLDER (of letters, digits, . _ -; not {ALONE!r}, {ORACLE!r})"
        )
    return name, Path(path)


def _numbers(value: str) -> list[int]:
    if not re.fullmatch(r"\d+(,\d+)*", value) or min(found := [int(n) for n in value.split(",")]) < 2:
        raise argparse.ArgumentTypeError(f"{value!r} is not a list like 2,4,8 of numbers above 1 (1 is sampling)")
    return found


def _sizes(value: str) -> list[tuple[int, int]]:
    if not re.fullmatch(r"[1-9]\d*x[1-9]\d*(,[1-9]\d*x[1-9]\d*)*", value):
        raise argparse.ArgumentTypeError(f"{value!r} is not a list like 2x2,4x8 of nodes kept x actions drawn")
    sizes = (size.split("x") for size in value.split(","))
    return [(int(kept), int(drawn)) for kept, drawn in sizes]


if __name__ == "__main__":
    main()
