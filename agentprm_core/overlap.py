"""Which games were demonstrated, played in rollouts and searched, and how far these overlap.

Demonstrations are drawn apart from rollouts and searches (:mod:`agentprm_core.draws`). Were they not, one method would
learn from games that π₀ has seen played and another from new ones, and the two could not be compared.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pyarrow.parquet as pq

from agentprm_core.credit.split import validation_games
from agentprm_core.expectations import Check
from agentprm_core.methods.base import Given
from agentprm_core.suites import demonstrated_suite


def game_ids(episodes: Path) -> set[str]:
    """The games of a table of EPISODES. Its texts are not read."""
    column = pq.read_table(episodes, columns=["game_id"], read_dictionary=["game_id"])["game_id"]
    return set(column.unique().to_pylist())


def of_rollouts(given: Given, played: Collection[str]) -> tuple[dict[str, float], Check]:
    """Of the games ``played`` in this iteration's rollouts: the figures, and the check that they were demonstrated as
    often as chance has it.

    ``demonstrated``: the share of them that has a demonstration; ``demonstrated_validation``: the same of those that
    the PRM is measured on.
    """
    demonstrated, games = game_ids(given.folders.demos), set(played)
    held_out = validation_side(given, games)
    figures = {
        "demonstrated": share(games, demonstrated),
        "demonstrated_validation": share(held_out, demonstrated),
    }
    others = {game.id for game in given.training_games} - games
    pairs = [("rollouts, other training games", games, others)]
    pairs.append(("validation games, other games of the rollouts", held_out, games - held_out))
    return figures, demonstrated_suite(demonstrated, pairs)


def of_search(given: Given, searched: Collection[str]) -> tuple[dict[str, float], Check]:
    """Of the games that a search played: the figures (:func:`of_played`), and the check that they were demonstrated as
    often as chance has it, and as often as the rollouts' games."""
    demonstrated, games = game_ids(given.folders.demos), set(searched)
    rollouts = game_ids(given.folders.rollouts[-1])
    others = {game.id for game in given.training_games} - games
    pairs = [("searched games, other training games", games, others)]
    pairs.append(("searched games, games of the rollouts", games - rollouts, rollouts - games))
    return of_played(given, games), demonstrated_suite(demonstrated, pairs)


def of_played(given: Given, games: Collection[str]) -> dict[str, float]:
    """Of training games that are played beside the rollouts:

    ``demonstrated``: the share of them that has a demonstration; ``in_rollouts``: the share that any rollout of the
    campaign has played so far; ``taught_prm``: the share that is on the training side of such rollouts, so that the
    PRM, or one that it goes on from, was trained on it.
    """
    ever = set[str]().union(*map(game_ids, given.folders.rollouts))
    return {
        "demonstrated": share(games, game_ids(given.folders.demos)),
        "in_rollouts": share(games, ever),
        "taught_prm": share(games, ever - validation_side(given, ever)),
    }


def validation_side(given: Given, games: Collection[str]) -> set[str]:
    """Those of ``games`` that no PRM of the campaign is trained on."""
    ids = sorted(games)
    sides = validation_games(ids, given.validation_share, given.campaign_seed)
    return {game_id for game_id, held_out in zip(ids, sides) if held_out}


def share(games: Collection[str], marked: Collection[str]) -> float:
    """Of ``games`` those that are ``marked``; 0 of no games."""
    return len(set(games) & set(marked)) / len(games) if games else 0.0
