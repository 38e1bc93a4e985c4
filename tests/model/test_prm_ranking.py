"""Ranking accuracy: by hand on a few states, its interval on many, and what counts as better than chance."""

from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentprm_core.prm.ranking import choice_gain, in_words, ranking_accuracy, ranking_difference


def test_by_hand():
    state = ["a", "a", "a", "b", "b", "c"]
    q = np.array([[0.1], [0.5], [0.9], [0.3], [0.3], [1.0]])
    score = np.array([0.2, 0.1, 0.9, 0.5, 0.6, 0.5])
    figures = ranking_accuracy(state, q, score, seed=0)
    # a: 0.1<0.5 wrong, 0.1<0.9 right, 0.5<0.9 right; b has equal returns; c has one action
    assert (figures["states"], figures["pairs"]) == (1, 3)
    assert figures["accuracy"] == pytest.approx(2 / 3)
    assert [figures[f"{name}{end}"] for name in ("half_accuracy", "ceiling") for end in ("", "_low")] == [None] * 4
    chosen = choice_gain(state, q, score, seed=0)
    assert (chosen["states"], chosen["gain"], chosen["headroom"]) == (2, pytest.approx(0.2), None)  # 0.4 and 0 at b


def test_equal_scores_count_half_and_the_margin_leaves_pairs_out():
    q, score = np.array([[0.0], [0.5], [0.52]]), np.array([0.3, 0.3, 0.1])
    assert ranking_accuracy([1, 1, 1], q, score, seed=0)["accuracy"] == pytest.approx(0.5 / 3)
    figures = ranking_accuracy([1, 1, 1], q, score, seed=0, margin=0.1)
    assert (figures["pairs"], figures["accuracy"]) == (2, 0.25)


@pytest.mark.parametrize(("skill", "better"), [(0.0, False), (1.0, True)])
def test_better_than_chance_takes_the_whole_interval(skill, better):
    rng = np.random.default_rng(0)
    state = np.repeat(np.arange(60), 4)
    q = rng.random(240)
    score = skill * q + rng.random(240)
    figures = ranking_accuracy(state, q[:, None], score, seed=1)
    assert figures["accuracy_low"] < figures["accuracy"] < figures["accuracy_high"]
    chosen = choice_gain(state, q[:, None], score, seed=1)
    assert chosen["gain_low"] < chosen["gain"] < chosen["gain_high"]
    assert (chosen["gain_low"] > 0) == better
    assert figures["better_than_chance"] is better


def test_the_interval_covers_one_half_for_random_scores_nearly_always():
    rng = np.random.default_rng(3)
    state = np.repeat(np.arange(30), 3)
    inside = 0
    for trial in range(40):
        figures = ranking_accuracy(state, rng.random((90, 1)), rng.random(90), seed=trial)
        inside += figures["accuracy_low"] <= 0.5 <= figures["accuracy_high"]
    assert inside >= 34


@pytest.mark.parametrize(("games", "better"), [(1, False), (5, False), (6, True)])
def test_a_few_games_that_agree_are_not_better_than_chance(games, better):
    """Six coins fall alike, heads up, in less than 2.5 % of cases."""
    state = np.repeat(np.arange(games), 2)
    won = np.tile([[0.0], [1.0]], (games, 1))
    figures = ranking_accuracy(state, won, won[:, 0], seed=0)
    assert (figures["games"], figures["accuracy_low"]) == (games, 1.0)
    assert figures["better_than_chance"] is better


def test_nothing_to_compare_is_not_better_than_chance():
    alone = (["a", "b"], np.array([[0.1, 0.2], [0.9, 0.8]]), np.array([0.1, 0.9]))
    figures = ranking_accuracy(*alone, seed=0)
    assert (figures["pairs"], figures["accuracy"], figures["better_than_chance"]) == (0, None, False)
    assert (figures["half_pairs"], figures["half_accuracy"], figures["ceiling"]) == (0, None, None)
    chosen = choice_gain(*alone, seed=0)
    assert (chosen["states"], chosen["gain"], chosen["headroom"]) == (0, None, None)


def test_lengths_must_agree():
    with pytest.raises(ValueError, match="2 states, 2 rows of returns, 1 scores and 2 games"):
        ranking_accuracy(["a", "b"], np.zeros((2, 6)), np.zeros(1), seed=0)


def test_states_of_one_game_are_drawn_together():
    """Ten copies of a game's state are no more evidence than one; as states of ten games they would be. The interval
    against a bootstrap by hand."""
    rng = np.random.default_rng(1)
    game, q_G2, score_G2 = np.repeat(np.arange(40), 2), rng.random((40, 2)), rng.random((40, 2))
    few = ranking_accuracy(game, q_G2.reshape(-1, 1), score_G2.ravel(), seed=2, game_N=game)
    state = np.arange(400).repeat(2)  # the ten copies of game 0, then those of game 1 …
    copies = (state, q_G2.repeat(10, axis=0).reshape(-1, 1), score_G2.repeat(10, axis=0).ravel())
    together, apart = (ranking_accuracy(*copies, seed=2, game_N=names) for names in (state // 10, None))
    for name in ("accuracy", "accuracy_low", "accuracy_high"):
        assert together[name] == pytest.approx(few[name])
    assert together["states"] == apart["states"] == 10 * few["states"] == 400
    width, narrow = (found["accuracy_high"] - found["accuracy_low"] for found in (together, apart))
    assert narrow == pytest.approx(width / 10**0.5, rel=0.2)
    right_G = (q_G2[:, 0] > q_G2[:, 1]) == (score_G2[:, 0] > score_G2[:, 1])
    drawn = [rng.choice(right_G, 40).mean() for _ in range(4000)]
    assert [few["accuracy_low"], few["accuracy_high"]] == pytest.approx(np.percentile(drawn, [2.5, 97.5]), abs=0.03)
    chosen = [choice_gain(*copies, seed=2, game_N=names) for names in (state // 10, None)]
    assert chosen[0]["gain"] == chosen[1]["gain"] and chosen[0]["gain_low"] < chosen[1]["gain_low"]


def plays(worth: float, states=800, actions=3, count=6):
    """States, won plays of their actions, whose chances of winning lie ``worth`` apart around ½, and these chances."""
    rng = np.random.default_rng(5)
    truth_SA = 0.5 + worth * (np.tile(np.arange(actions), (states, 1)) - (actions - 1) / 2)
    truth_N = rng.permuted(truth_SA, axis=1).ravel()
    return np.repeat(np.arange(states), actions), rng.random((len(truth_N), count)) < truth_N[:, None], truth_N


def test_pure_noise_has_no_order_and_nothing_to_gain_though_its_best_returned_more():
    state, won, _ = plays(worth=0.0)
    score = np.random.default_rng(6).random(len(state))
    figures, chosen = (f(state, won, score, seed=0) for f in (ranking_accuracy, choice_gain))
    for name in ("accuracy", "half_accuracy", "ceiling"):
        assert figures[name] == pytest.approx(0.5, abs=0.02)
    assert figures["ceiling_low"] < 0.5 < figures["ceiling_high"]
    best = choice_gain(state, won, won.mean(1), seed=0)["gain"]  # by the very plays that it is measured by
    assert best > 0.15
    assert abs(chosen["headroom"]) < 0.015 and chosen["headroom_low"] < 0 < chosen["headroom_high"]


def test_what_plays_can_tell_of_a_true_order():
    """Against the exact figures, from all outcomes of three and of six plays of each action."""
    chances = (0.25, 0.5, 0.75)
    state, won, truth = plays(worth=0.25)
    figures, chosen = (f(state, won, truth, seed=0) for f in (ranking_accuracy, choice_gain))
    assert chosen["gain"] == pytest.approx(0.25, abs=0.015)
    three, six = (
        [np.array([comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]) for p in chances] for n in (3, 6)
    )
    right, wrong = ordered(three)
    tied, pairs = 1 - right - wrong, (right + wrong).sum()
    assert figures["half_accuracy"] == pytest.approx(right.sum() / pairs, abs=0.015)
    ceiling = (right * (right + tied / 2) + wrong * (wrong + tied / 2)).sum() / pairs
    assert figures["ceiling"] == pytest.approx(ceiling, abs=0.02)
    right, wrong = ordered(six)
    assert figures["accuracy"] == pytest.approx(right.sum() / (right + wrong).sum(), abs=0.015)
    picked = 0.0
    for counts in np.ndindex(4, 4, 4):
        best = np.array(counts) == max(counts)
        picked += np.prod([three[a][k] for a, k in enumerate(counts)]) * (best @ [-0.25, 0, 0.25]) / best.sum()
    assert chosen["headroom"] == pytest.approx(picked, abs=0.02)


def ordered(wins_A: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The chances that plays put two actions in their true order, and in the contrary, for each pair."""
    joint = [np.outer(wins_A[worse], wins_A[better]) for worse, better in ((0, 1), (0, 2), (1, 2))]
    return np.array([np.triu(j, 1).sum() for j in joint]), np.array([np.tril(j, -1).sum() for j in joint])


def test_halves_by_hand():
    state, score = ["a", "a", "b", "b"], np.array([0.9, 0.1, 0.9, 0.1])
    won = np.array([[1, 1], [0, 1], [1, 0], [0, 1]], float)
    figures = ranking_accuracy(state, won, score, seed=0)
    assert (figures["pairs"], figures["accuracy"]) == (1, 1.0)  # b's actions returned alike
    # judged by the first play: 1 > 0 at a, where the second play ties, and 1 > 0 at b, where it says the contrary; by
    # the second: nothing at a, 0 < 1 at b, where first play and score say the contrary
    assert (figures["half_pairs"], figures["half_accuracy"]) == (1.5, pytest.approx(2 / 3))
    assert figures["ceiling"] == pytest.approx(0.5 / 3)
    # chosen by the second, as the first returned: tie at a 0, at b -0.5; by the first, as the second: 0 and -0.5
    assert choice_gain(state, won, score, seed=0)["headroom"] == pytest.approx(-0.25)


def pair_by_pair(state_N, return_NR, score_N, other_N, margin):
    """(right by the one less right by the other, pairs) for each game of one state, slowly."""
    found = []
    for state in dict.fromkeys(state_N):
        of = [n for n, name in enumerate(state_N) if name == state]
        for a in of:
            for b in of:
                if return_NR[a].mean() - return_NR[b].mean() > margin:
                    one, two = (1.0 if s[a] > s[b] else 0.5 if s[a] == s[b] else 0.0 for s in (score_N, other_N))
                    found.append(one - two)
    return sum(found) / len(found), len(found)


@settings(max_examples=40)
@given(st.integers(0, 10_000))
def test_the_difference_of_two_scorers_is_that_over_the_same_pairs(seed):
    rng = np.random.default_rng(seed)
    state = [f"s{n}" for n in rng.integers(0, 12, 40)]
    returns, ours, other = rng.integers(0, 2, (40, 4)) * 1.0, rng.integers(0, 3, 40) * 1.0, rng.normal(size=40)
    found = ranking_difference(state, returns, ours, other, seed=1, margin=0.2)
    difference, pairs = pair_by_pair(state, returns, ours, other, 0.2)
    assert found["pairs"] == pairs and found["difference"] == pytest.approx(difference)
    alone = [ranking_accuracy(state, returns, s, seed=1, margin=0.2)["accuracy"] for s in (ours, other)]
    assert found["difference"] == pytest.approx(alone[0] - alone[1])
    assert found["difference_low"] <= found["difference"] <= found["difference_high"]


def test_a_difference_shows_where_two_intervals_overlap():
    """Two scorers that differ in a tenth of the pairs alone: their own intervals overlap, that of the difference has no
    zero in it."""
    rng = np.random.default_rng(3)
    state, returns = np.repeat(np.arange(150), 2), np.tile([[1.0], [0.0]], (150, 1))
    right = rng.random(150) < 0.6
    better = right | (rng.random(150) < 0.2)
    ours, other = (np.stack([of, 1 - of], 1).ravel() for of in (better * 1.0, right * 1.0))
    apart = [ranking_accuracy(state, returns, s, seed=1) for s in (ours, other)]
    assert apart[0]["accuracy_low"] < apart[1]["accuracy_high"]
    found = ranking_difference(state, returns, ours, other, seed=1)
    assert found["difference_low"] > 0 and found["difference"] == pytest.approx(better.mean() - right.mean())
    same = ranking_difference(state, returns, ours, ours, seed=1)
    assert (same["difference"], same["difference_low"], same["difference_high"]) == (0, 0, 0)


def test_without_a_pair_there_is_no_difference_and_the_line_says_what_there_is():
    nothing = ranking_difference(["a"], np.ones((1, 3)), np.ones(1), np.ones(1), seed=1)
    assert nothing == {"pairs": 0, "difference": None, "difference_low": None, "difference_high": None}
    one = {"accuracy": 0.72, "accuracy_low": 0.63, "accuracy_high": 0.81, "pairs": 119}
    assert in_words({"ranking": one}) == "it orders 72 % [63, 81] of 119 pairs"
    over = {"pairs": 119, "difference": -0.092, "difference_low": -0.177, "difference_high": -0.008}
    told = {"ranking": one, "ranking_by_likelihood": one | {"accuracy": 0.82}, "ranking_over_likelihood": over}
    assert in_words(told).endswith("on the same pairs -9.2 points [-17.7, -0.8]: it ranks worse")
    assert in_words(told | {"ranking_over_likelihood": over | {"difference_high": 0.01}}).endswith(
        ": no difference that shows"
    )
