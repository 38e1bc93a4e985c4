"""What ``agentprm search-curves`` measures: every search under every PRM."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import pyarrow as pa

from agentprm_core.datasets import write_table
from agentprm_core.evaluate import OUTCOMES, outcomes_table, summary
from agentprm_core.kept import kept
from agentprm_core.policy.models import Checkpoint, load_checkpoint, playing_dtype, require_world
from agentprm_core.search.decoding_config import LIKELIHOOD, DecodingConfig
from agentprm_core.search.playing import (
    Judged,
    Search,
    best_of_each_game,
    judge,
    likeliest_of_each_game,
    play_games,
    play_headroom,
    play_trajectories,
    search_digest,
)
from agentprm_core.types import Episode, Game
from tasks.commands.curves_table import ALONE, ORACLE, SEARCHES, UNTAUGHT, curves_of, efficiencies, table, text
from tasks.commands.measuring import asked_games, search_from, settle_world
from tasks.frame.quiet import quiet
from tasks.frame.stage import write_json
from tasks.report.figures import search_curves


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
    path: bool = False,
    untaught: bool = False,
) -> list[Cell]:
    """Every cell, the cheap ones first. ``plays``: of the oracle, None for none. ``path``: trajectories and beams are
    weighed by all of their actions. ``untaught``: every search also by the policy's own likelihood. Cells that no prior
    decides have none, so that another prior keeps them."""
    plain = replace(search, prior=0.0)
    alone = [Cell(ALONE, replace(plain, way=DecodingConfig(method))) for method in ("greedy", "sample")]
    sizes = [replace(search, way=DecodingConfig("best_of_n", n=n)) for n in best_of]
    whole = search if path else plain
    sizes += [replace(whole, way=DecodingConfig("best_trajectory", n=n, path=path)) for n in best_of]
    sizes += [replace(search, way=DecodingConfig("beam", width=n, samples=m, path=path)) for n, m in beams]
    oracle = [Cell(ORACLE, size, plays) for size in sizes if size.way.method == "best_of_n" and plays]
    played = []
    for size in sizes:
        played += [Cell(prm, size) for prm in prms]
        if untaught:  # the likelihood needs no prior beside it
            played.append(Cell(UNTAUGHT, replace(size, prior=0.0)))
    return alone + played + oracle


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
        self._searches = [cell.search for cell in cells if _is_of_trajectories(cell)]
        self._judged: dict[str, dict[tuple[str, int], Judged]] = {}

    @cached_property
    def _played(self) -> list[Episode]:
        most = max(self._searches, key=lambda search: search.way.n)
        return play_trajectories(self._policy, self._games, most, self._seed)

    def best(self, cell: Cell) -> list[Episode]:
        """Of each game the one that the cell's PRM finds best."""
        of = [episode for episode in self._played if episode.index < cell.search.way.n]
        if cell.prm == UNTAUGHT:
            return likeliest_of_each_game(of)
        if cell.prm not in self._judged:
            self._judged[cell.prm] = judge(self._played, self._prms[cell.prm])
        return best_of_each_game(of, self._judged[cell.prm], cell.search)


def _is_of_trajectories(cell: Cell) -> bool:
    return cell.search.way.method == "best_trajectory"


def run(arguments: argparse.Namespace) -> None:
    """Measure what the command line says, write and print it."""
    quiet()
    settle_world(arguments)
    how = {"device": arguments.device, "dtype": playing_dtype(arguments.precision)}
    policy = load_checkpoint(arguments.policy, **how)
    prms = {name: load_checkpoint(path, kind="prm", **how) for name, path in arguments.prm}
    for source, checkpoint in [(arguments.policy, policy), *((name, prms[name]) for name in prms)]:
        require_world(checkpoint, source, arguments.world)
    games = asked_games(arguments)
    search = search_from(arguments, policy.model.config.max_position_embeddings, DecodingConfig("sample"))
    asked = {"plays": arguments.oracle, "path": arguments.path_prior, "untaught": arguments.likelihood}
    cells = plan(list(prms), search, arguments.best_of, arguments.beams, **asked)
    outcomes = measure(cells, policy, prms, games, arguments.split, arguments.seed, arguments.out / "cells")
    first = next(iter(prms), None)
    rows = table(outcomes, {cell.search.name: cell.search.way.method for cell in cells}, first)
    compared = efficiencies(rows, first) if first else []
    write_table(outcomes, arguments.out / "outcomes.parquet")
    digests = {"policy": policy.digest, "prms": {name: prm.digest for name, prm in prms.items()}}
    write_json(
        {"rows": rows, "efficiency": compared, "search": asdict(search), **digests}, arguments.out / "curves.json"
    )
    curves = {search: of for search in SEARCHES if (of := curves_of(rows, search))}
    search_curves(curves, rows, arguments.out / "curves.png")
    print(text(rows, compared, first), flush=True)


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
    elif cell.prm == UNTAUGHT:
        way = cell.search.way.under(LIKELIHOOD)
        episodes = play_games(policy, None, games, replace(cell.search, way=way), seed)
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
