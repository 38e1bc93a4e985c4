"""Does a PRM of one world help in another? PRMs of each world and of all, on the states and games of every world.

    python -m benchmarks.transfer --campaign . --limit 100 --json

The campaign is one of several worlds (``PROFILE=all_worlds``), so all PRMs share a tokenizer and start from one policy,
π₀. They are mixed with it as the campaign's are (``critic.init_from.mixing``). ``PRM of X`` is trained on the labels of
X's rollouts in iteration 1 and on no other. ``PRM of all`` has the labels of all worlds, ``PRM of a share of all`` as
many episodes of all worlds together as one world has. The placebo has the labels of all, permuted. Each is measured on
every world: how it orders the actions tried at held-out states there, and Best-of-N of π₀ on held-out games under it,
without a prior. ``untrained likelihood`` and ``constant`` are the controls that learnt nothing. For critics that learn
from labels by cross-entropy (``monte_carlo``, ``playing_on``).

The last line is one JSON object: ``ranking`` and ``success``, a row for each scorer and world, and ``agreement``,
whether the first tells the second (:func:`agreement`).
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pandas as pd
import torch

from agentprm_core.arguments import above_zero, any_seed, count, listed, not_negative
from agentprm_core.datasets import games_from_table, read_table
from agentprm_core.draws import sample_of
from agentprm_core.errors import DataError
from agentprm_core.evaluate import correct, paired_test, wilson
from agentprm_core.methods.base import Given
from agentprm_core.methods.critic_base import CriticConfig, labelled_sides, train_on_labels
from agentprm_core.policy.models import Checkpoint
from agentprm_core.prm.model import likelihood_alone
from agentprm_core.prm.placebo import permuted
from agentprm_core.prm.ranking import in_short, ranked
from agentprm_core.prm.rows import Labelled
from agentprm_core.search.decoding_config import decoding
from agentprm_core.search.playing import Search, play_games
from agentprm_core.types import GAMES, Game
from benchmarks.answering import answer, campaign_parser
from benchmarks.campaigns import games_by_world, given_of, params_of
from benchmarks.placebo_prm import critic_of
from benchmarks.tables import crossed

ALL, SHARE, PERMUTED = "PRM of all", "PRM of a share of all", "placebo of all"
LIKELIHOOD, CONSTANT = "untrained likelihood", "constant"


def trained(
    given: Given, config: CriticConfig, sides: tuple[list[Labelled], list[Labelled]], of: Mapping[str, str]
) -> dict[str, Checkpoint]:
    """{name: PRM} of each world, of all worlds, of a share of all, and the placebo. ``of``: {game: world}."""
    train, held_out = sides
    worlds = sorted(set(of.values()))
    parts = {world: [item for item in train if of[item.episode.game_id] == world] for world in worlds}
    mean = sum(map(len, parts.values())) // len(parts)
    mixed = random.Random(given.seed).sample(train, mean)
    chosen = {f"PRM of {world}": part for world, part in parts.items()}
    chosen |= {ALL: train, SHARE: mixed, PERMUTED: permuted(train, given.seed)}
    found = {}
    for name, rows in chosen.items():
        print(f"{name}: {len(rows)} episodes", file=sys.stderr)
        model = train_on_labels(config, given, rows, held_out, loss="bce").model
        found[name] = replace(given.trainee, model=model)
    return found


def rankings(prms: Mapping[str, Checkpoint], held_out: Sequence[Labelled], of: Mapping[str, str], given: Given) -> list:
    """A row for each scorer and world: :func:`agentprm_core.prm.ranking.ranked`'s figures on its held-out states."""
    untrained = replace(given.trainee, model=likelihood_alone(given.trainee.model))
    rows = []
    for name, prm in {**prms, LIKELIHOOD: untrained}.items():
        for world in sorted(set(of.values())):
            there = [item for item in held_out if of[item.episode.game_id] == world]
            tokens = given.hardware.pass_tokens
            told = ranked(prm.model, prm.renderer, there, batch_tokens=tokens, seed=given.seed)
            rows.append({"scorer": name, "world": world, **told})
    return rows


def successes(
    policy: Checkpoint, prms: Mapping[str, Checkpoint], games: Mapping[str, list[Game]], search: Search, seed: int
) -> list[dict]:
    """A row for each scorer and world: Best-of-N under it, and the paired difference to the untrained likelihood, whose
    p is also corrected for the number of these (``p_holm``, Holm)."""
    ways = {name: (prm, search) for name, prm in prms.items()}
    some = next(iter(prms.values()))  # the controls ask no PRM for a score
    for name, scorer in {LIKELIHOOD: "untrained_likelihood", CONSTANT: "constant"}.items():
        ways[name] = (some, replace(search, way=search.way.under(scorer)))
    rows, won = [], {}
    for name, (prm, how) in ways.items():
        for world, there in games.items():
            episodes = play_games(policy, prm, there, how, seed)
            won[name, world] = {episode.game_id: episode.won for episode in episodes}
            print(f"{name}, {world}: {sum(won[name, world].values())} of {len(there)}", file=sys.stderr)
    for (name, world), by_game in won.items():
        wins, n = sum(by_game.values()), len(by_game)
        row = {"scorer": name, "world": world, "games": n, "success": wins / n, "interval": wilson(wins, n)}
        test = None if name == LIKELIHOOD else asdict(paired_test(won[LIKELIHOOD, world], by_game))
        rows.append(row | {"v_likelihood": test})
    correct([row["v_likelihood"] for row in rows if row["v_likelihood"]])
    return rows


def agreement(ranking: Sequence[Mapping], success: Sequence[Mapping]) -> float | None:
    """Does the ranking tell success? Spearman's rank correlation over PRMs and worlds of two differences to the
    untrained likelihood: of the ranking's accuracy, and of success. None where either is the same in all."""
    accuracy = {(row["scorer"], row["world"]): row["ranking"]["accuracy"] for row in ranking}
    won = {(row["scorer"], row["world"]): row["success"] for row in success}
    pairs = [
        (accuracy[scorer, world] - accuracy[LIKELIHOOD, world], won[scorer, world] - won[LIKELIHOOD, world])
        for scorer, world in accuracy
        if scorer != LIKELIHOOD and None not in (accuracy[scorer, world], accuracy[LIKELIHOOD, world])
    ]
    found = pd.DataFrame(pairs, columns=["ranking", "success"]).rank().corr().loc["ranking", "success"]
    return None if pd.isna(found) else float(found)


def run(args: argparse.Namespace) -> dict:
    """Train, measure and play what the command line says; returns the JSON object."""
    params = params_of(args.campaign)
    config = critic_of(args.campaign, params)
    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory() as scratch:
        given = given_of(args.campaign, params, 1, Path(scratch))
        of = {game.id: game.world for game in games_from_table(read_table(given.folders.games, GAMES))}
        if len(set(of.values())) < 2:
            raise DataError(f"{args.campaign}: its games are of one world ({set(of.values())}): PROFILE=all_worlds")
        sides = labelled_sides(given, gamma=config.gamma, outcome=params["critic"]["outcome"])
        prms = trained(given, config, sides, of)
        found: dict = {"ranking": rankings(prms, sides[1], of, given)}
        there = games_by_world(args.campaign, args.split)
        games = {world: sample_of(its_games, args.limit) for world, its_games in there.items()}
        search = Search(decoding(args.search), given.play, args.temperature, args.prior)
        found["success"] = successes(given.trainee, prms, games, search, args.seed)
    return found | {"agreement": agreement(found["ranking"], found["success"])}


def _won(row: Mapping) -> str:
    test = row["v_likelihood"]
    beside = (
        ""
        if test is None
        else f" ({100 * test['difference']:+.1f}, p {test['p_value']:.2g}, p Holm {test['p_holm']:.2g})"
    )
    return f"{100 * row['success']:.1f} %{beside}"


def _told(found: Mapping) -> str:
    ranking = crossed(found["ranking"], "scorer", "world", lambda row: in_short(row["ranking"]))
    told = [ranking, crossed(found["success"], "scorer", "world", _won)]
    if found["agreement"] is not None:
        told.append(
            f"Over scorers and worlds, the rank correlation of ranking and success, each over the likelihood's: "
            f"{found['agreement']:.2f}"
        )
    return "\n\n".join(told)


def main() -> None:
    parser = campaign_parser("transfer", __doc__)
    parser.add_argument(
        "--split", type=listed(), default=("seen", "unseen"), help="of the games played (default seen,unseen)"
    )
    parser.add_argument("--limit", type=count, help="only so many games of each world")
    parser.add_argument("--search", default="best_of_16", help="of π₀ under each scorer (default %(default)s)")
    parser.add_argument("--prior", type=not_negative, default=0.0, help="τ (default %(default)s)")
    parser.add_argument("--temperature", type=above_zero, default=1.0)
    parser.add_argument("--threads", type=count, default=1)
    parser.add_argument("--seed", type=any_seed, default=1)
    args = parser.parse_args()
    answer("transfer", lambda: run(args), _told, only_json=args.json)


if __name__ == "__main__":
    main()
