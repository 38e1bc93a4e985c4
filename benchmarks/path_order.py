"""What a PRM orders: two actions of one state, or two paths of one game. The second is what a wide beam asks of it.

    python -m benchmarks.path_order --campaign . --search beam_4x4 --games 200 --json

Best-of-N compares actions of one state. So does the ranking that ``critic.require: ranking`` asks for. A beam compares
nodes: paths of one game that have gone different ways. Here π_{i−1} plays each game ``--plays`` times. Two episodes of
a game of which one was won are compared turn by turn, from the turn at which they part. A scorer is right where it
gives the won one's action the higher score. The action that wins is left out: a beam sees a win without a scorer. Each
game counts once, whatever its number of pairs. ``likelihood`` is π_{i−1}'s own, which learnt nothing.

For each iteration, and each world where the campaign has several:

- ``states``: the order of actions at the campaign's held-out states (:func:`agentprm_core.prm.ranking.ranked`),
- ``paths``: the order of paths, on ``--games`` held-out games,
- ``search``: how often the search wins these games by each scorer, the controls without a prior.

All three say what the PRM is over the likelihood. Of the searches p is McNemar's exact one, and ``p_holm`` is corrected
for the number of these differences in the table (Holm).

The last line is one JSON object: ``rows``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path

import numpy as np
import torch

from agentprm_core.arguments import any_seed, at_least, count, listed
from agentprm_core.evaluate import correct, paired_test
from agentprm_core.methods.base import Given
from agentprm_core.methods.critic_base import labelled_sides
from agentprm_core.prm.dataset import Labelled
from agentprm_core.prm.model import likelihood_alone
from agentprm_core.prm.ranking import ranked, shares
from agentprm_core.prm.score import score_episodes
from agentprm_core.rollout import play, starts
from agentprm_core.search.decoding_config import LIKELIHOOD, PRM, decoding
from agentprm_core.search.playing import play_games
from agentprm_core.types import Episode, Game
from benchmarks.answering import answer, campaign_parser
from benchmarks.campaigns import games_by_world, given_of, params_of
from tasks.report.text import markdown

CONTROLS = (LIKELIHOOD, "constant")
"""Scorers that the PRM's search is held against."""


def paths_in_order(scores: Mapping[str, Sequence[np.ndarray]], episodes: Sequence[Episode], seed: int) -> dict:
    """How each scorer orders paths of one game.

    Args:
        scores: by scorer, of each episode the scores of its actions, (T,).
        episodes: several of a game.
        seed: of the bootstrap over games.

    Returns:
        ``games`` that were both won and lost, their ``pairs`` of turns; by scorer its ``accuracy`` with a 95 % interval
        (``accuracy_low``, ``accuracy_high``), ties being half; and for each scorer but the first ``over_NAME``:
        ``difference``, the first's accuracy minus its, with its interval. None where no game was both won and lost.
    """
    of_game: dict[str, list[int]] = defaultdict(list)
    for number, episode in enumerate(episodes):
        of_game[episode.game_id].append(number)
    by_game = [pairs for numbers in of_game.values() if (pairs := list(_pairs(episodes, numbers)))]
    found: dict = {"games": len(by_game), "pairs": sum(map(len, by_game))}
    right = {
        name: np.array([np.mean([_order(of[w][t], of[x][t]) for w, x, t in pairs]) for pairs in by_game])
        for name, of in scores.items()
    }
    found |= {name: _mean("accuracy", right_G, seed) for name, right_G in right.items()}
    first, *others = right
    return found | {f"over_{name}": _mean("difference", right[first] - right[name], seed) for name in others}


def _pairs(episodes: Sequence[Episode], numbers: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """(won episode, lost episode, turn): both acted there, and not alike up to it."""
    for won, lost in product(numbers, numbers):
        if not episodes[won].won or episodes[lost].won:
            continue
        apart = False
        for turn in range(min(episodes[won].length - 1, episodes[lost].length)):
            apart = apart or episodes[won].turns[turn].action != episodes[lost].turns[turn].action
            if apart:
                yield won, lost, turn


def _order(better: float, worse: float) -> float:
    return float((np.sign(better - worse) + 1) / 2)


def _mean(name: str, value_G: np.ndarray, seed: int) -> dict:
    return shares({name: value_G}, np.ones(len(value_G)), np.arange(len(value_G)), seed)


def measure(root: Path, args: argparse.Namespace) -> list[dict]:
    """A row an iteration and world. Raises DataError where the folder is no campaign that has come so far."""
    params, rows = params_of(root), []
    critic = params["critic"]
    torch.set_num_threads(args.threads)
    of_world = games_by_world(root, args.split)
    with tempfile.TemporaryDirectory() as scratch:
        for i in args.iterations or sorted(int(name) for name in params["iterations"]):
            given = replace(given_of(root, params, i, Path(scratch)), prior=critic["prior"])
            _, held_out = labelled_sides(given, gamma=critic["gamma"], outcome=critic.get("outcome", "binary"))
            worlds = {game.id: game.world for game in given.training_games}
            for world, there in of_world.items():
                print(f"PRM {i}, {world}", file=sys.stderr, flush=True)
                known = [item for item in held_out if worlds[item.episode.game_id] == world]
                rows.append({"iteration": i, "world": world, **_row(given, known, _spread(there, args.games), args)})
    correct_searches(rows)
    return rows


def correct_searches(rows: Sequence[Mapping]) -> None:
    """Write ``p_holm`` into what the searches of all rows tell of the PRM."""
    correct([row["search"][f"over_{by}"] for row in rows if row["search"] for by in CONTROLS])


def _spread(games: Sequence[Game], most: int) -> list[Game]:
    """At most ``most`` of them, as many of each part of the list."""
    return [games[len(games) * n // most] for n in range(most)] if len(games) > most else list(games)


def _row(given: Given, held_out: Sequence[Labelled], games: Sequence[Game], args: argparse.Namespace) -> dict:
    tokens, player = given.hardware.pass_tokens, given.policy
    told = ranked(
        given.prm.model, player.renderer, held_out, batch_tokens=tokens, seed=given.seed, policy=given.trainee.model
    )
    sampler = given.play.sampler(player, given.temperature)
    played = list(play(sampler, starts(games, args.plays, args.seed), **given.play.worlds))
    models = {"prm": given.prm.model, "likelihood": likelihood_alone(given.trainee.model)}
    scores = {name: score_episodes(model, player.renderer, played, tokens) for name, model in models.items()}
    return {
        "states": {name: told[name] for name in ("ranking", "ranking_by_likelihood", "ranking_over_likelihood")},
        "paths": paths_in_order(scores, played, args.seed),
        "search": _searched(given, games, args) if args.search else None,
    }


def _searched(given: Given, games: Sequence[Game], args: argparse.Namespace) -> dict:
    way, won = decoding(args.search), {}
    for by in (PRM, *CONTROLS):
        prior = given.prior if by == PRM else 0.0  # which makes these controls weaker
        search = replace(given.search(way.under(by)), prior=prior)
        episodes = play_games(given.policy, given.prm, games, search, args.seed)
        won[by] = {episode.game_id: episode.won for episode in episodes}
    found: dict = {"games": len(games), **{by: sum(of.values()) / len(games) for by, of in won.items()}}
    return found | {f"over_{by}": asdict(paired_test(won[by], won[PRM])) for by in CONTROLS}


def _over(told: Mapping, low: str = "difference_low", high: str = "difference_high") -> str:
    if told["difference"] is None:
        return "–"
    difference, of, to = (100 * told[name] for name in ("difference", low, high))
    return f"{difference:+.1f} [{of:+.1f}, {to:+.1f}]"


def _share(told: Mapping) -> str:
    return "–" if told["accuracy"] is None else f"{100 * told['accuracy']:.1f} %"


def table(rows: Sequence[Mapping]) -> str:
    """Markdown: a row an iteration and world; what the PRM is over the likelihood, in points."""
    head = ["PRM", "world", "states", "pairs", "over the likelihood", "paths", "games", "over the likelihood"]
    if rows and rows[0]["search"]:
        head += ["search by the PRM", "over the likelihood", "p Holm", "over the most frequent sample", "p Holm"]
    body = []
    for row in rows:
        states, paths, search = row["states"], row["paths"], row["search"]
        cells = [row["iteration"], row["world"], _share(states["ranking"]), states["ranking"]["pairs"]]
        cells += [_over(states["ranking_over_likelihood"])]
        cells += [_share(paths["prm"]), paths["games"], _over(paths["over_likelihood"])]
        if search:
            cells.append(f"{100 * search[PRM]:.1f} %")
            for by in CONTROLS:
                test = search[f"over_{by}"]
                cells += [f"{_over(test, 'ci_low', 'ci_high')}, p {test['p_value']:.2g}", f"{test['p_holm']:.2g}"]
        body.append([str(cell) for cell in cells])
    return "\n".join(markdown(head, body))


def main() -> None:
    parser = campaign_parser("path_order", __doc__)
    parser.add_argument("--iterations", type=listed(count), help="default: all")
    parser.add_argument("--split", type=listed(), default=("seen", "unseen"), help="of the games (default seen,unseen)")
    parser.add_argument("--games", type=count, default=200, help="at most, of each world (default %(default)s)")
    parser.add_argument("--plays", type=at_least(2), default=4, help="of a game (default %(default)s)")
    parser.add_argument("--search", help="played under each scorer: beam_4x4 (default: none)")
    parser.add_argument("--seed", type=any_seed, default=1)
    parser.add_argument("--threads", type=count, default=1)
    args = parser.parse_args()
    answer(
        "path_order",
        lambda: {"rows": measure(args.campaign, args)},
        lambda found: table(found["rows"]),
        only_json=args.json,
    )


if __name__ == "__main__":
    main()
