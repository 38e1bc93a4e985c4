"""Ranking accuracy: by hand on a few states, its interval on many, and what counts as better than chance."""

import numpy as np
import pytest

from agentprm_core.prm.ranking import ranking_accuracy


def test_by_hand():
    state = ["a", "a", "a", "b", "b", "c"]
    q = np.array([0.1, 0.5, 0.9, 0.3, 0.3, 1.0])
    score = np.array([0.2, 0.1, 0.9, 0.5, 0.6, 0.5])
    figures = ranking_accuracy(state, q, score, seed=0)
    # a: 0.1<0.5 wrong, 0.1<0.9 right, 0.5<0.9 right; b has equal returns; c has one action
    assert (figures["states"], figures["pairs"]) == (1, 3)
    assert figures["accuracy"] == pytest.approx(2 / 3)
    assert figures["gain"] == figures["headroom"] == pytest.approx(0.4)


def test_equal_scores_count_half_and_the_margin_leaves_pairs_out():
    q, score = np.array([0.0, 0.5, 0.52]), np.array([0.3, 0.3, 0.1])
    assert ranking_accuracy([1, 1, 1], q, score, seed=0)["accuracy"] == pytest.approx(0.5 / 3)
    figures = ranking_accuracy([1, 1, 1], q, score, seed=0, margin=0.1)
    assert (figures["pairs"], figures["accuracy"]) == (2, 0.25)


@pytest.mark.parametrize(("skill", "better"), [(0.0, False), (1.0, True)])
def test_better_than_chance_takes_the_whole_interval(skill, better):
    rng = np.random.default_rng(0)
    state = np.repeat(np.arange(60), 4)
    q = rng.random(240)
    score = skill * q + rng.random(240)
    figures = ranking_accuracy(state, q, score, seed=1)
    assert figures["accuracy_low"] < figures["accuracy"] < figures["accuracy_high"]
    assert figures["gain_low"] < figures["gain"] < figures["gain_high"]
    assert figures["better_than_chance"] is better


def test_the_interval_covers_one_half_for_random_scores_nearly_always():
    rng = np.random.default_rng(3)
    state = np.repeat(np.arange(30), 3)
    inside = 0
    for trial in range(40):
        figures = ranking_accuracy(state, rng.random(90), rng.random(90), seed=trial)
        inside += figures["accuracy_low"] <= 0.5 <= figures["accuracy_high"]
    assert inside >= 34


def test_nothing_to_compare_is_not_better_than_chance():
    figures = ranking_accuracy(["a", "b"], np.array([0.1, 0.9]), np.array([0.1, 0.9]), seed=0)
    assert (figures["pairs"], figures["accuracy"], figures["better_than_chance"]) == (0, None, False)


def test_lengths_must_agree():
    with pytest.raises(ValueError, match="2 states, 2 returns and 1 scores"):
        ranking_accuracy(["a", "b"], np.zeros(2), np.zeros(1), seed=0)
