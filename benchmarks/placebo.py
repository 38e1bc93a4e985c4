"""What a PRM is worth: the same searches of the same policy on the same games, only the scorer replaced.

    python -m benchmarks.placebo --policy data/checkpoints/policy/0 --prm data/checkpoints/prm/1 \
        --games data/games --split seen,unseen --limit 200 --json
    python -m benchmarks.placebo --policy DIR --prm DIR --placebo DIR --games data/games/unseen.parquet \
        --split unseen --scorers prm,placebo,random --searches best_of_2,best_of_64,beam_1x16_back,beam_8x8 --prior 0

Every search is played under every scorer (:mod:`agentprm_core.search.scorers`) and with every weight τ of the samples'
shares. ``placebo`` is a PRM that was trained alike on permuted labels (``python -m benchmarks.placebo_prm``). Several
PRMs, ``--prm A,B,C``, are an ensemble: ``prm`` is the mean of their scores, ``worst_case`` the lowest. The table
has success with its 95 % interval, and the difference to the PRM on the same games with McNemar's exact p, also
corrected for the number of differences in the table (Holm). ``tokens`` are those that all models read and ``steps`` the
actions done in any world, a game. With ``--json`` the last line is one JSON object with a row for each line of the
table. With ``--keep DIR`` what has been played is kept there, and a run that was killed goes on.
``python -m benchmarks.over_seeds`` takes the lines of several seeds.

It needs torch, transformers, numpy, pyarrow and pandas, and nothing of the pipeline.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import torch
from transformers.utils import logging

from agentprm_core.arguments import OneLineParser, above_zero, any_seed, at_least, count, device, listed, not_negative
from agentprm_core.datasets import games_from_table, read_table
from agentprm_core.draws import sample_of
from agentprm_core.errors import EXPECTED, DataError
from agentprm_core.evaluate import OUTCOMES, correct, outcomes_table, paired_test, pooled, pooled_wins, summary
from agentprm_core.kept import kept
from agentprm_core.policy.models import Checkpoint, load_checkpoint, measured_where, playing_dtype
from agentprm_core.prm.ensemble import ensemble
from agentprm_core.search.decoding_config import PRM, SCORERS, WITHOUT_PRM, decoding
from agentprm_core.search.playing import PlaySettings, Search, play_games, search_digest
from agentprm_core.types import GAMES, Game
from agentprm_core.worlds import world_of, world_spec
from agentprm_core.worlds.published import find_games, world_of_games

PLACEBO = "placebo"
WORST = "worst_case"
"""Of several PRMs the lowest score."""
AS_PRM = (PLACEBO, WORST)
"""Played as the PRM is, with another checkpoint in its place."""
CHEAP = tuple(name for name in SCORERS if name != "true_q")
"""What is played unless ``--scorers`` says otherwise: ``true_q`` costs a hundred times the others."""
OF_SEVERAL = (PRM, WORST, *(name for name in CHEAP if name in WITHOUT_PRM))
"""The same of several PRMs, which have no parts."""
SEARCHES = ("best_of_16", "beam_1x16", "beam_4x4")
GAMMA = 0.95
"""Of ``true_q``: of two actions that lead to a win it takes the shorter way."""
_UNBOUNDED_MB = 1 << 20
"""``--slots`` alone says how many episodes are played at once."""
HEAD = ("search", "τ", "scorer", "success", "95 % interval", "v. PRM", "95 % interval", "p", "p Holm", "tokens")
HEAD += ("steps",)


@dataclass(frozen=True)
class Cell:
    """One line of the table."""

    search: Search
    scorer: str

    @property
    def place(self) -> tuple[str, float]:
        """The search and its prior: what cells have in common that are held against each other."""
        return self.search.way.under(PRM).name, self.search.prior


def plan(searches: Sequence[str], scorers: Sequence[str], priors: Sequence[float], base: Search) -> list[Cell]:
    """Every search with every prior under every scorer; those of :data:`AS_PRM` are played as the PRM is.

    Raises ValueError for a search or a scorer that there is not.
    """
    cells = []
    for name in searches:
        for prior in priors:
            for scorer in scorers:
                way = decoding(name).under(PRM if scorer in AS_PRM else scorer)
                cells.append(Cell(replace(base, way=way, prior=prior), scorer))
    return cells


def measure(
    cells: Sequence[Cell],
    policy: Checkpoint,
    prms: Mapping[str, Checkpoint],
    splits: Mapping[str, Sequence[Game]],
    seed: int,
    keep: Path | None,
) -> Iterator[tuple[Cell, pa.Table]]:
    """Each cell with its outcomes, as they are played. ``prms``: the PRM, and what is played in its place."""
    for number, cell in enumerate(cells, 1):
        began, prm = time.perf_counter(), prms[cell.scorer if cell.scorer in AS_PRM else PRM]
        tables = []
        for split, games in splits.items():
            play = partial(_played, cell, policy, prm, games, split, seed)
            digest = search_digest(policy, prm, games, cell.search, seed)
            path = keep and keep / f"{split}-{cell.search.name}-{cell.scorer}-{digest}.parquet"
            tables.append(kept(path, OUTCOMES, play) if path else play())
        outcomes = pa.concat_tables(tables)
        won = sum(outcomes["won"].to_pylist()) / len(outcomes)
        name = f"{cell.place[0]}, τ {cell.search.prior:g}, {cell.scorer}"
        print(f"[{number}/{len(cells)}] {name}: {won:.1%}, {time.perf_counter() - began:.0f} s", flush=True)
        yield cell, outcomes


def table(played: Sequence[tuple[Cell, pa.Table]]) -> list[dict]:
    """A row a cell: ``search``, ``prior``, ``scorer``, ``games``, ``success``, ``ci_low`` and ``ci_high``, ``v_prm``
    (success minus the PRM's, :class:`agentprm_core.evaluate.Paired` and ``p_holm``; None of the PRM itself, and where
    that was not played), and the means a game of ``tokens`` and ``world_steps``."""
    won = {(cell.place, cell.scorer): pooled_wins(outcomes) for cell, outcomes in played}
    rows = []
    for cell, outcomes in played:
        (found,) = pooled(outcomes)
        row = {"search": cell.place[0], "prior": cell.search.prior, "scorer": cell.scorer}
        row |= {name: found[name] for name in ("games", "success", "ci_low", "ci_high", "world_steps")}
        row["tokens"] = found["policy_read"] + found["prm_read"]
        row["by_split"] = {each["split"]: each["success"] for each in summary(outcomes)}
        by_prm = won.get((cell.place, PRM)) if cell.scorer != PRM else None
        row["v_prm"] = by_prm and asdict(paired_test(by_prm, won[cell.place, cell.scorer]))
        rows.append(row)
    tests = [row["v_prm"] for row in rows if row["v_prm"]]
    correct(tests)
    return rows


def text(rows: Sequence[Mapping]) -> str:
    """The table as it is printed."""
    lines = [HEAD, *(_cells(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines)


def _cells(row: Mapping) -> tuple[str, ...]:
    test = row["v_prm"]
    against = ("", "", "", "")
    if test:
        interval = f"[{100 * test['ci_low']:+.1f}, {100 * test['ci_high']:+.1f}]"
        won = f"{100 * test['difference']:+.1f} ({test['gained']} won, {test['lost']} lost)"
        against = (won, interval, f"{test['p_value']:.2g}", f"{test['p_holm']:.2g}")
    named = (row["search"], f"{row['prior']:g}", row["scorer"], f"{row['success']:.1%}")
    interval = f"[{row['ci_low']:.1%}, {row['ci_high']:.1%}]"
    return (*named, interval, *against, f"{row['tokens']:.0f}", f"{row['world_steps']:.0f}")


def _played(cell: Cell, policy: Checkpoint, prm: Checkpoint, games: Sequence[Game], split: str, seed: int) -> pa.Table:
    episodes = play_games(policy, prm, games, cell.search, seed)
    named = {"iteration": 0, "method": cell.scorer, "split": split, "decoding": cell.search.name, "seed": seed}
    return outcomes_table(episodes, games, **named, constrained=cell.search.settings.constrained, policy=policy.digest)


def games_of(root: Path, split: str, world: str, limit: int | None) -> list[Game]:
    """Of a folder (:func:`agentprm_core.worlds.published.find_games`), or of a table of games: those of ``split``.

    Raises DataError where there are none.
    """
    if not root.exists():
        raise DataError(f"--games: {root}: no such file or folder")
    if root.is_dir():
        return find_games(world, root, split, limit)
    games = games_from_table(read_table(root, GAMES))
    found = [game for game in games if game.split == split]
    if not found:
        raise DataError(f"--split: {split}: {root} has games of {', '.join(sorted({game.split for game in games}))}")
    return sample_of(found, limit)


def run(args: argparse.Namespace) -> dict:
    """Play and print what the command line says; returns the JSON object."""
    torch.set_num_threads(args.threads)
    how = {"device": args.device, "dtype": playing_dtype(args.precision)}
    trained = measured_where(args.policy)
    named = world_of_games(args.games, args.split[0]) or trained or "alfworld"
    world = args.world or world_of(named, trained)
    spec = world_spec(world)
    policy = load_checkpoint(args.policy, prompt=spec.prompt, **how)
    found = [load_checkpoint(each, kind="prm", **how) for each in args.prm]
    prms = {PRM: found[0]} if len(found) == 1 else {PRM: ensemble(found), WORST: ensemble(found, lowest=True)}
    if args.placebo:
        prms[PLACEBO] = load_checkpoint(args.placebo, kind="prm", **how)
    splits = {split: games_of(args.games, split, world, args.limit) for split in args.split}
    settings = PlaySettings(
        world=world,
        max_turns=args.max_turns or spec.max_turns,
        context=policy.model.config.max_position_embeddings,
        max_action_tokens=args.max_action_tokens,
        constrained=not args.free,
        slots=args.slots,
        cache_mb=_UNBOUNDED_MB,
    )
    base = Search(decoding("sample"), settings, args.temperature, gamma=GAMMA)
    cells = plan(args.searches, args.scorers, args.prior, base)
    rows = table(list(measure(cells, policy, prms, splits, args.seed, args.keep)))
    print(f"\n{text(rows)}\nv. PRM: success minus the PRM's on the same games; p: McNemar's exact test", flush=True)
    digests = {"policy": policy.digest} | {name: prm.digest for name, prm in prms.items()}
    counts = {split: len(games) for split, games in splits.items()}
    return {"rows": rows, "games": counts, "seed": args.seed, "temperature": args.temperature, **digests}


def main() -> None:
    parser = _parser()
    args = parser.parse_args()
    fitting = CHEAP if len(args.prm) == 1 else OF_SEVERAL
    args.scorers = args.scorers or (*fitting, *((PLACEBO,) if args.placebo else ()))
    if PLACEBO in args.scorers and not args.placebo:
        parser.error("--scorers placebo needs --placebo, a PRM of permuted labels (python -m benchmarks.placebo_prm)")
    if WORST in args.scorers and len(args.prm) == 1:
        parser.error(f"--scorers {WORST} is of several PRMs, and --prm is one: --prm A,B,C")
    if not sys.stderr.isatty():
        logging.disable_progress_bar()
    try:
        found = run(args)
    except EXPECTED as error:
        sys.exit(f"placebo: {error}")
    if args.json:
        print(json.dumps(found))


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="python -m benchmarks.placebo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--policy", type=Path, required=True, help="checkpoint folder")
    parser.add_argument("--prm", type=listed(), required=True, help="checkpoint folder; several, A,B,C: an ensemble")
    parser.add_argument("--placebo", type=Path, help="checkpoint folder of a PRM of permuted labels")
    parser.add_argument("--games", type=Path, required=True, help="a folder of games, or a Parquet table of them")
    parser.add_argument("--split", type=listed(), required=True, help="unseen, valid_seen …; several: seen,unseen")
    parser.add_argument("--limit", type=count, help="only so many games of each split, drawn so that kinds mix")
    parser.add_argument("--world", help="a name, or package.module:SPEC (default: the games', else the policy's)")
    parser.add_argument(
        "--scorers",
        type=listed(_scorer),
        help=f"of {', '.join((*SCORERS, *AS_PRM))} (default: all that fit, but for true_q)",
    )
    parser.add_argument("--searches", type=listed(_search), default=SEARCHES, help=f"(default {','.join(SEARCHES)})")
    parser.add_argument(
        "--prior", type=listed(not_negative), default=(0.1, 0.0), help="τ, one or several (default 0.1,0)"
    )
    parser.add_argument("--temperature", type=above_zero, default=1.0, help="of samples (default %(default)s)")
    parser.add_argument("--free", action="store_true", help="decode freely, not among the admissible commands")
    parser.add_argument("--max-turns", type=count, help="actions an episode (default: the world's)")
    parser.add_argument("--max-action-tokens", type=at_least(2), default=16, help="(default %(default)s)")
    parser.add_argument("--slots", type=count, default=128, help="episodes at once (default %(default)s)")
    parser.add_argument("--threads", type=count, default=torch.get_num_threads())
    parser.add_argument("--device", type=device, default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32", help="of play")
    parser.add_argument("--seed", type=any_seed, default=1)
    parser.add_argument("--keep", type=Path, help="a folder for what was played: a killed run goes on")
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object")
    return parser


def _scorer(name: str) -> str:
    if name not in (*SCORERS, *AS_PRM):
        raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join((*SCORERS, *AS_PRM))}")
    return name


def _search(name: str) -> str:
    try:
        way = decoding(name)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if way.method not in ("best_of_n", "beam") or way.by != PRM:
        raise argparse.ArgumentTypeError(
            f"{name!r} is not allowed: best_of_N, beam_NxM, beam_NxM_back or beam_NxM_path"
        )
    return way.name


if __name__ == "__main__":
    main()
