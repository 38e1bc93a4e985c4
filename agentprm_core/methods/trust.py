"""Whether a PRM may be followed, by an update or by a search for one: what ``critic.require`` asks of it.

``ranking``: it orders two actions at one state as their measured returns do, better than chance. ``gain``: a search
under it wins games that the same search under the policy's own likelihood loses. The policy that the PRM was trained on
plays games held out from the PRM both ways, with the same seeds, by the method's search, or by Best-of-:data:`SAMPLES`
where the method has none. Where the PRM wins no more than chance explains (McNemar's exact test), nothing says that
there is anything to follow.

Both are asked on the campaign's guard games, in places that nothing was trained in. A campaign that has none asks on
the rollouts' validation games.

A PRM that is refused is a result: the campaign keeps the policy it has (:mod:`agentprm_core.methods.refused`). With
``ranking_or_error`` and ``gain_or_error`` it ends there.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from agentprm_core.credit.split import validation_games
from agentprm_core.errors import DataError
from agentprm_core.evaluate import LEVEL, Paired, paired_test
from agentprm_core.methods.base import Given
from agentprm_core.policy.models import Checkpoint
from agentprm_core.prm.ranking import FEWEST_GAMES, in_short
from agentprm_core.search.decoding_config import LIKELIHOOD, DecodingConfig, decoding
from agentprm_core.search.playing import play_games
from agentprm_core.types import Game

SAMPLES = 4
"""N of Best-of-N, where the method searches nothing itself."""
GAMES = 200
"""Held-out games played, or all where the rollouts have fewer."""
OR_ERROR = "_or_error"
"""Ends a value of ``critic.require`` under which a refused PRM is an error."""
MORE = "Give it more to learn from (rollout.games, rollout.episodes_per_game, rollout.branch.train_states)"


class PrmRefused(DataError):
    """A PRM that may not be followed. The message says what it has not shown and what to do."""

    def __init__(self, message: str, shown: str) -> None:
        """``shown``: what it has shown, in a few words."""
        super().__init__(message)
        self.shown = shown


def trusted(given: Given, require: str, search: str = f"best_of_{SAMPLES}") -> dict:
    """The figures of what is required of this iteration's PRM. ``search``: what it is wanted for. In one that the
    likelihood cannot choose in, Best-of-:data:`SAMPLES` is played in its place.

    Raises:
        PrmRefused: the PRM has not shown it.
    """
    asked = require.removesuffix(OR_ERROR)
    if asked == "ranking":
        _check_ranking(given)
    if asked != "gain":
        return {}
    way = decoding(search)
    return {"gain": required_gain(given, way if way.takes_scorers else DecodingConfig("best_of_n", n=SAMPLES))}


def required_gain(given: Given, way: DecodingConfig) -> dict:
    """The figures of the test: those of :class:`agentprm_core.evaluate.Paired`. Raises PrmRefused: nothing is
    gained."""
    found = gain(given, given.policy, given.prm, held_out_games(given), way)
    print(said(found, way), flush=True)
    if found.difference <= 0 or found.p_value >= LEVEL:
        raise PrmRefused(
            f"{given.folders.prm} does not make its policy win more: {said(found, way)}; needed is a gain at "
            f"p < {LEVEL}. {MORE}, or set critic.require: ranking",
            f"of {found.games} games {way.name} under it gained {found.gained} and lost {found.lost}",
        )
    return asdict(found)


def held_out_games(given: Given) -> list[Game]:
    """The guard games; without them games that were played and are for validation, drawn by the seed."""
    if given.guard_games:
        return given.guard_games
    ids = sorted({episode.game_id for episode in given.episodes})
    sides = validation_games(ids, given.validation_share, given.campaign_seed)
    wanted = {game_id for game_id, validation in zip(ids, sides) if validation}
    games = [game for game in given.training_games if game.id in wanted]
    drawn = random.Random(given.seed).sample(games, min(GAMES, len(games)))
    return sorted(drawn, key=lambda game: game.id)


def gain(given: Given, policy: Checkpoint, prm: Checkpoint, games: Sequence[Game], way: DecodingConfig) -> Paired:
    """The search under the policy's own likelihood, against the same under the PRM, game by game."""
    before, after = (
        {episode.game_id: episode.won for episode in play_games(policy, prm, games, search, given.seed)}
        for search in (given.search(way.under(LIKELIHOOD)), given.search(way))
    )
    return paired_test(before, after)


def said(found: Paired, way: DecodingConfig) -> str:
    """The figures in a sentence."""
    points = f"{100 * found.difference:+.1f} points, p = {found.p_value:.3f}"
    return (
        f"of {found.games} held-out games {way.name} under it won {found.gained} that it lost under the policy's own "
        f"likelihood, and lost {found.lost} that it won so ({points})"
    )


def _check_ranking(given: Given) -> None:
    assert given.ranking is not None, "a PRM is measured before it is followed"
    if not given.ranking["better_than_chance"]:
        raise PrmRefused(
            f"{given.folders.prm} ranks actions no better than chance: {_measured(given.ranking)}. A policy that "
            f"follows it learns nothing. {MORE}, measure it at more states (rollout.branch.validation_states), or set "
            "critic.require: nothing",
            in_short(given.ranking),
        )


def _measured(ranking: Mapping) -> str:
    if ranking["accuracy"] is None:
        return "no held-out state has two actions whose measured returns differ by more than the margin"
    return (
        f"it orders {ranking['accuracy']:.0%} [{ranking['accuracy_low']:.0%}, {ranking['accuracy_high']:.0%}] of "
        f"{ranking['pairs']} pairs at {ranking['states']} states of {ranking['games']} held-out games as their "
        "returns do" + (f"; fewer than {FEWEST_GAMES} games cannot tell" if ranking["games"] < FEWEST_GAMES else "")
    )
