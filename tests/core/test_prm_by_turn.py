"""Scores by turn, by hand on three episodes."""

import dataclasses

import numpy as np
import pytest

from agentprm_core.prm.by_turn import scores_by_turn
from agentprm_core.types import Episode, Turn


def episode(index: int, turns: int, won: bool) -> Episode:
    return Episode("game", index, index, tuple(Turn("o", "look", ("look",), True, "k") for _ in range(turns)), won)


EPISODES = [episode(0, 3, True), episode(1, 2, True), episode(2, 3, False)]
SCORES = [np.array([0.5, 0.7, 0.9]), np.array([0.4, 0.5]), np.array([0.45, 0.6, 0.1])]


def test_by_hand():
    rows = scores_by_turn(SCORES, EPISODES)
    assert [(row["turn"], row["episodes"]) for row in rows] == [(0, 3), (1, 3), (2, 2)]
    assert [row["won"] for row in rows] == pytest.approx([0.45, 0.6, 0.9])
    assert [row["lost"] for row in rows] == pytest.approx([0.45, 0.6, 0.1])
    assert rows[0]["change"] is None
    assert [row["change"] for row in rows[1:]] == pytest.approx([0.45 / 3, 0.7 / 2])
    assert [row["auc"] for row in rows] == [0.5, 0.5, 1.0]


def test_turns_that_led_to_the_start_are_nobodys():
    later = dataclasses.replace(EPISODES[2], start=1)
    rows = scores_by_turn(SCORES[2:], [later])
    assert [(row["turn"], row["lost"], row["won"], row["auc"]) for row in rows] == [
        (1, 0.6, None, None),
        (2, 0.1, None, None),
    ]
    assert [row["change"] for row in rows] == [None, pytest.approx(0.5)]


def test_flat_scores_do_not_change():
    rows = scores_by_turn([np.full(3, 0.5)] * 2, [EPISODES[0], EPISODES[2]])
    assert [row["change"] for row in rows] == [None, 0.0, 0.0]
    assert {row["auc"] for row in rows} == {0.5}


def test_a_score_too_few_names_the_episode():
    with pytest.raises(ValueError, match="episode 1 of game: 3 scores for 2 turns"):
        scores_by_turn([SCORES[0]], EPISODES[1:2])
