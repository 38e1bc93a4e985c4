"""What the update owes to the PRM: π₁ by the same search and imitation, only what chooses in the search is replaced.

    python -m benchmarks.updates --campaign . --placebo data/placebo/1 --keep data/updates --json

The campaign's π₀ searches the training games that iteration 1 of expert iteration takes, once under each scorer
(:mod:`agentprm_core.search.scorers`). What was won is imitated, with the campaign's steps and rates. Every arm imitates
as many episodes as the arm that won fewest (``--all``: all that it won), for as many steps and tokens. ``rft`` imitates
won rollouts of π₀, without a search. ``demonstrations`` goes on with those that π₀ was trained on. ``takeover``: the
expert of these takes over π₀'s rollouts, and what it does from there is imitated where it wins
(:mod:`agentprm_core.methods.dagger`). ``placebo`` is a PRM of permuted labels (``python -m benchmarks.placebo_prm``).
The policies then play held-out games without a PRM.

The last line is one JSON object: ``rows``, an arm each, with what was won and imitated, success on both splits together
(``success``) and on each (``by_split``), and paired differences to the PRM's arm with McNemar's exact p: of success
(``v_prm``), on each split, and of the searches where both searched (``search_v_prm``). Each of the three kinds is also
corrected for the number of its differences (``p_holm``, Holm). A difference is the row's minus the PRM's. With
``--keep`` a run that was killed goes on.
``python -m benchmarks.over_seeds`` takes the lines of several seeds.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import torch

from agentprm_core.arguments import any_seed, count, listed
from agentprm_core.datasets import atomic_write, episodes_from_table, games_from_table, read_table, write_table
from agentprm_core.errors import DataError
from agentprm_core.evaluate import correct, paired_test, wilson
from agentprm_core.improve.rft import successes
from agentprm_core.improve.takeover import taken_over
from agentprm_core.methods.base import Given
from agentprm_core.methods.expert_iteration import Config, collect
from agentprm_core.methods.update_base import imitate
from agentprm_core.policy.models import Checkpoint, load_checkpoint, save_checkpoint
from agentprm_core.search.decoding_config import LIKELIHOOD, PRM, SCORERS, decoding
from agentprm_core.search.playing import Search, play_games
from agentprm_core.types import EPISODES, GAMES, Episode
from agentprm_core.worlds import measured_in
from benchmarks.answering import answer, campaign_parser
from benchmarks.campaigns import given_of, params_of
from tasks.report.text import markdown

PLACEBO, RFT, DEMONSTRATIONS, TAKEOVER, FIRST = "placebo", "rft", "demonstrations", "takeover", "π₀"
UNSEARCHED = (RFT, DEMONSTRATIONS, TAKEOVER)
SPLITS = ("seen", "unseen")
Won = Mapping[str, bool]
"""By game."""
ARMS = (PRM, "trained_likelihood", LIKELIHOOD, "constant", "random", RFT, DEMONSTRATIONS)
"""What is run unless ``--arms`` says otherwise, and the placebo where there is one."""


def config_of(params: Mapping, steps: int | None, games: int | None) -> Config:
    """The campaign's method. Raises DataError where that is not expert iteration."""
    method = dict(params["method"])
    if method["name"] != "expert_iteration":
        raise DataError(f"method.name: {method['name']!r}: the update by a search is that of expert_iteration")
    named = {field.name: method[field.name] for field in fields(Config)}
    named |= {"steps": steps or method["steps"], "games": games or method["games"], "keeps": "won", "replay": 0.0}
    return Config(**named)


def expert_of(params: Mapping) -> dict[str, Any]:
    """Which expert demonstrated, as :func:`agentprm_core.improve.takeover.taken_over` has it."""
    demos = params["demos"]
    by = demos["games"].get("by") if isinstance(demos["games"], Mapping) else None
    return {"expert": by, "knowledge": demos["knowledge"]}


def found_by(arm: str, config: Config, given: Given, placebo: Path | None, expert: Mapping[str, Any]) -> list[Episode]:
    """The episodes of which the arm may imitate the won ones."""
    if arm == RFT:
        return given.episodes
    if arm == DEMONSTRATIONS:
        return given.demonstrations
    if arm == TAKEOVER:
        games, play = {game.id: game for game in given.training_games}, given.play
        how = {"max_turns": play.max_turns, "seed": given.seed, **expert}
        return taken_over(given.episodes, games, world_name=play.world, **how)
    kept = given.scratch / "collected.parquet"
    if not kept.exists():
        way = decoding(config.search).under(PRM if arm == PLACEBO else arm)
        folders = given.folders if arm != PLACEBO else replace(given.folders, prm=placebo)
        searching = replace(given, folders=folders, require="nothing")
        write_table(collect(replace(config, search=way.name), searching).table, kept)
    return list(episodes_from_table(read_table(kept, EPISODES)))


def updated(config: Config, given: Given, chosen: Sequence[Episode]) -> Checkpoint:
    """π₀ after imitating them."""
    folder = given.scratch / "policy"
    if not folder.exists():
        model = imitate(config, given, chosen, 0.0).model
        told = {"prompt": given.trainee.renderer.prompt, "world": given.play.world}
        with atomic_write(folder) as aside:
            save_checkpoint(model, given.trainee.tokenizer, aside, **told)
    return load_checkpoint(folder, device=given.device)


def wins_of(policy: Checkpoint, given: Given, root: Path, way: str) -> dict[str, bool]:
    """{split/game: won} of the campaign's held-out games."""
    play = replace(given.play, world=measured_in(given.play.world))
    search, won = Search(decoding(way), play, given.temperature), {}
    for split in SPLITS:
        games = games_from_table(read_table(root / f"data/games/{split}.parquet", GAMES))
        played = play_games(policy, None, games, search, given.seed)
        won |= {f"{split}/{episode.game_id}": episode.won for episode in played}
    return won


def measure(root: Path, args: argparse.Namespace) -> list[dict]:
    """A row an arm. Raises DataError for a folder that is no finished iteration."""
    params = params_of(root)
    config = config_of(params, args.steps, args.games)
    torch.set_num_threads(args.threads)
    base = replace(given_of(root, params, 1, args.keep), prior=params["critic"]["prior"])
    base = replace(base, seed=base.seed + 100000 * args.seed)
    givens = {arm: replace(base, scratch=args.keep / f"{args.seed}-{arm}") for arm in args.arms}
    found = {}
    for arm, given in givens.items():
        given.scratch.mkdir(parents=True, exist_ok=True)
        found[arm] = found_by(arm, config, given, args.placebo, expert_of(params))
        print(f"{arm}: {len(successes(found[arm]))} won of {len(found[arm])}", file=sys.stderr, flush=True)
    fewest = min(len(successes(episodes)) for episodes in found.values())
    played = {FIRST: wins_of(base.policy, base, root, args.way)}
    rows = [_row(FIRST, played[FIRST], 0, None)]
    for arm, given in givens.items():
        won = successes(found[arm])
        chosen = won if args.all else random.Random(base.seed).sample(won, fewest)
        played[arm] = wins_of(updated(config, given, chosen), given, root, args.way)
        rows.append(_row(arm, played[arm], len(chosen), len(won) / len(found[arm])))
        print(f"{arm}: {rows[-1]['success']:.1%}", file=sys.stderr, flush=True)
    if PRM in played:
        searched = found.keys() - {*UNSEARCHED}
        compare(rows, played, {arm: {one.game_id: one.won for one in found[arm]} for arm in searched})
    return rows


def compare(rows: list[dict], played: Mapping[str, Won], found: Mapping[str, Won]) -> None:
    """Put each arm minus the PRM's into its row, each p also corrected (``p_holm``). ``found``: by arm that searched,
    which of its games were won."""
    others = [row for row in rows if row["arm"] != PRM]
    for row in others:
        arm = row["arm"]
        row["v_prm"] = asdict(paired_test(played[PRM], played[arm]))
        for split, told in row["by_split"].items():
            told["v_prm"] = asdict(paired_test(_of(split, played[PRM]), _of(split, played[arm])))
        if arm in found:
            row["search_v_prm"] = asdict(paired_test(found[PRM], found[arm]))
    correct([row["v_prm"] for row in others])
    correct([told["v_prm"] for row in others for told in row["by_split"].values()])
    correct([row["search_v_prm"] for row in others if row["search_v_prm"]])


def _of(split: str, won: Won) -> Won:
    return {name: one for name, one in won.items() if name.startswith(f"{split}/")}


def _row(arm: str, won: Won, imitated: int, searched: float | None) -> dict:
    low, high = wilson(sum(won.values()), len(won))
    success = sum(won.values()) / len(won)
    told = {"arm": arm, "won_to_imitate": searched, "imitated": imitated, "games": len(won), "success": success}
    each = {split: of for split in SPLITS if (of := _of(split, won))}
    by_split = {
        split: {"games": len(of), "success": sum(of.values()) / len(of), "v_prm": None} for split, of in each.items()
    }
    return told | {"ci_low": low, "ci_high": high, "v_prm": None, "search_v_prm": None, "by_split": by_split}


def table(rows: Sequence[Mapping]) -> str:
    """Markdown: a row an arm."""
    head = ("what chose", "won to imitate", "imitated", "success", *SPLITS, "v. PRM, points", "p", "p Holm")
    body = []
    for row in rows:
        won = "" if row["won_to_imitate"] is None else f"{row['won_to_imitate']:.1%}"
        cells = [row["arm"], won, str(row["imitated"])]
        cells += [f"{row['success']:.1%} [{100 * row['ci_low']:.1f}, {100 * row['ci_high']:.1f}]"]
        cells += [f"{row['by_split'][split]['success']:.1%}" if split in row["by_split"] else "" for split in SPLITS]
        test = row["v_prm"]
        points = test and f"{100 * test['difference']:+.1f} [{100 * test['ci_low']:+.1f}, {100 * test['ci_high']:+.1f}]"
        cells += [points, f"{test['p_value']:.2g}", f"{test['p_holm']:.2g}"] if test else ["", "", ""]
        body.append(cells)
    return "\n".join(markdown(head, body)).replace("%", " %")


def _arm(name: str) -> str:
    if name not in (allowed := (*SCORERS, PLACEBO, *UNSEARCHED)):
        raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(allowed)}")
    return name


def main() -> None:
    parser = campaign_parser("updates", __doc__)
    parser.add_argument("--keep", type=Path, required=True, help="a folder for searches and policies")
    parser.add_argument("--arms", type=listed(_arm), help=f"default: {','.join(ARMS)}")
    parser.add_argument("--placebo", type=Path, help="checkpoint folder of a PRM of permuted labels")
    parser.add_argument("--way", default="greedy", help="how the policies play held-out games (default %(default)s)")
    parser.add_argument("--steps", type=count, help="of the update (default: the campaign's)")
    parser.add_argument("--games", type=count, help="searched (default: the campaign's)")
    parser.add_argument("--all", action="store_true", help="each arm imitates all that it won")
    parser.add_argument("--seed", type=any_seed, default=1, help="of the draws in search and update (default 1)")
    parser.add_argument("--threads", type=count, default=1)
    args = parser.parse_args()
    args.arms = args.arms or [*ARMS, *([PLACEBO] if args.placebo else [])]
    if PLACEBO in args.arms and not args.placebo:
        parser.error("--arms placebo needs --placebo, a PRM of permuted labels (python -m benchmarks.placebo_prm)")
    answer(
        "updates",
        lambda: {"rows": measure(args.campaign, args), "seed": args.seed},
        lambda found: table(found["rows"]),
        only_json=args.json,
    )


if __name__ == "__main__":
    main()
