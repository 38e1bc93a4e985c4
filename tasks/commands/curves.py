"""What ``agentprm search-curves`` measures: every search under every PRM, its table and its picture."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import pyarrow as pa

from agentprm_core.datasets import write_table
from agentprm_core.evaluate import COMPUTE, OUTCOMES, outcomes_table, paired_test, summary, wins
from agentprm_core.kept import kept
from agentprm_core.policy.models import Checkpoint, load_checkpoint, playing_dtype, require_world
from agentprm_core.search.decoding_config import DecodingConfig
from agentprm_core.search.efficiency import efficiency
from agentprm_core.search.playing import (
    End,
    Search,
    best_of_each_game,
    judge_ends,
    play_games,
    play_headroom,
    play_trajectories,
    search_digest,
)
from agentprm_core.types import Episode, Game
from agentprm_core.worlds.published import find_games
from tasks.commands.measuring import search_from, settle_world
from tasks.frame.quiet import quiet
from tasks.frame.stage import write_json
from tasks.report.figures import search_curves
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
    """Outcomes of all cells. One that ``folder`` has from before is read, not played. Trajectories are played once for
    all PRMs and sizes, and a PRM scores them once: those of a size are the first of the most."""
    tables, trajectories = [], _Trajectories(policy, prms, games, cells, seed)
    for number, cell in enumerate(cells, 1):
        prm, began = prms.get(cell.prm), time.perf_counter()
        digest = search_digest(policy, prm, games, cell.search, seed, cell.plays)
        path = folder / f"{cell.prm}-{cell.search.name}-{digest}.parquet"
        old = path.exists()
        tables.append(kept(path, OUTCOMES, partial(_played, cell, policy, prm, games, split, seed, trajectories)))
        name = f"[{number}/{len(cells)}] {cell.search.name} {cell.prm}"
        _say(name, tables[-1], None if old else time.perf_counter() - began)
    return pa.concat_tables(tables)


class _Trajectories:
    """Whole episodes to choose among, played and scored when they are first asked for."""

    def __init__(
        self,
        policy: Checkpoint,
        prms: Mapping[str, Checkpoint],
        games: Sequence[Game],
        cells: Sequence[Cell],
        seed: int,
    ) -> None:
        self._policy, self._prms, self._games, self._seed = policy, prms, games, seed
        self._most = max(
            (cell.search for cell in cells if _is_of_trajectories(cell)), key=lambda s: s.way.n, default=None
        )
        self._ends: dict[str, dict[tuple[str, int], End]] = {}

    @cached_property
    def _played(self) -> list[Episode]:
        assert self._most is not None
        return play_trajectories(self._policy, self._games, self._most, self._seed)

    def best(self, cell: Cell) -> list[Episode]:
        """Of each game the one that the cell's PRM finds best."""
        if cell.prm not in self._ends:
            self._ends[cell.prm] = judge_ends(self._played, self._prms[cell.prm])
        return best_of_each_game([e for e in self._played if e.index < cell.search.way.n], self._ends[cell.prm])


def _is_of_trajectories(cell: Cell) -> bool:
    return cell.search.way.method == "best_trajectory"


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


def run(arguments: argparse.Namespace) -> None:
    """Measure what the command line says, write and print it."""
    quiet()
    settle_world(arguments)
    how = {"device": arguments.device, "dtype": playing_dtype(arguments.precision)}
    policy = load_checkpoint(arguments.policy, **how)
    prms = {name: load_checkpoint(path, kind="prm", **how) for name, path in arguments.prm}
    for source, checkpoint in [(arguments.policy, policy), *((name, prms[name]) for name in prms)]:
        require_world(checkpoint, source, arguments.world)
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
    trajectories: _Trajectories,
) -> pa.Table:
    if cell.plays:
        episodes = play_headroom(policy, games, cell.search, seed, cell.plays)
    elif _is_of_trajectories(cell):
        episodes = trajectories.best(cell)
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
