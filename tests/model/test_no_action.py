"""Episodes whose first observation fills the context: nothing is done in them, so no PRM has an action to score."""

from dataclasses import replace

import pytest

from agentprm_core.evaluate import outcomes_table, summary
from agentprm_core.search.decoding_config import decoding
from agentprm_core.search.playing import (
    Search,
    best_of_each_game,
    judge,
    mean_scores,
    play_games,
    play_trajectories,
)
from tests.model import toy
from tests.model.portions import GAMES, SETTINGS
from tests.model.test_search import prm_of

NO_ROOM = Search(decoding("best_trajectory_of_2"), replace(SETTINGS, context=12), 1.0, 0.0)
ROOM = replace(NO_ROOM, settings=SETTINGS)
NAMES = {"iteration": 0, "method": "", "split": "seen", "constrained": True, "seed": 1, "policy": "it"}


@pytest.fixture(scope="module")
def prm():
    return prm_of(0.0)


@pytest.mark.usefixtures("toy_engine")
def test_they_are_lost_games_without_a_score(prm):
    lost = play_games(toy.policy(), prm, GAMES[:2], NO_ROOM, seed=1)
    assert [(episode.length, episode.won, episode.truncated) for episode in lost] == [(0, False, True)] * 2
    played = play_games(toy.policy(), prm, GAMES[2:4], ROOM, seed=1)
    scores = mean_scores(prm, [*lost, *played])
    assert sorted(scores) == sorted(game.id for game in GAMES[2:4])
    table = outcomes_table([*lost, *played], GAMES[:4], decoding=ROOM.name, scores=scores, **NAMES)
    assert table["score"].null_count == 2
    assert summary(table)[0]["score"] == pytest.approx(sum(scores.values()) / 2)


@pytest.mark.usefixtures("toy_engine")
def test_best_trajectory_prefers_any_other(prm):
    (short, _), (_, long) = (play_trajectories(toy.policy(), GAMES[:1], way, seed=1) for way in (NO_ROOM, ROOM))
    (best,) = best_of_each_game([short, long], judge([short, long], prm), ROOM)
    assert best.index == long.index and best.length == long.length > 0
