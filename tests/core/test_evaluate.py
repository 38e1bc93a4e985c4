"""Success with its interval, paired tests, and the rows of the table, against closed forms and by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from agentprm_core.evaluate import OUTCOMES, holm, outcomes_table, paired_test, summary, wilson, wins
from agentprm_core.policy.sampler import Cost
from agentprm_core.types import Episode, Game, Turn

GAMES = [
    Game(f"seen/{kind}/{n}", "alfworld", "seen", kind, "put a mug in cabinet.", "(problem)")
    for kind in ("pick_and_place_simple", "look_at_obj_in_light")
    for n in range(2)
]
KEYS = {"iteration": 1, "method": "agentprm", "split": "seen", "decoding": "greedy", "constrained": True, "seed": 3}


def episode(game: Game, won: bool, actions: int, valid: bool = True) -> Episode:
    turns = [Turn("you see a mug 1", "look", ("look",), valid, "key") for _ in range(actions)]
    spent = {"cost": Cost(generated=3 * actions), "world_steps": actions}
    return Episode(game.id, 0, 5, tuple(turns), won, extra=spent)


def outcomes(won: list[bool], **changes):
    episodes = [episode(game, outcome, 4 + i, valid=i > 0) for i, (game, outcome) in enumerate(zip(GAMES, won))]
    return outcomes_table(episodes, GAMES, **{**KEYS, "policy": "digest", **changes})


@given(st.integers(1, 500), st.data())
def test_wilson_is_scipys(n, data):
    k = data.draw(st.integers(0, n))
    expected = binomtest(k, n).proportion_ci(0.95, method="wilson")
    low, high = wilson(k, n)
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert 0 <= low <= k / n <= high <= 1


def test_wilson_refuses_no_trials():
    with pytest.raises(ValueError, match="0 successes in 0 trials"):
        wilson(0, 0)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60))
def test_mcnemar_is_the_exact_binomial_test(pairs):
    before = {str(i): b for i, (b, _) in enumerate(pairs)}
    after = {str(i): a for i, (_, a) in enumerate(pairs)}
    found = paired_test(before, after)
    discordant = found.gained + found.lost
    assert found.p_value == pytest.approx(binomtest(found.gained, discordant).pvalue if discordant else 1.0)
    assert found.difference == pytest.approx((sum(after.values()) - sum(before.values())) / len(pairs))
    assert found.ci_low <= found.difference <= found.ci_high
    back = paired_test(after, before)
    assert (back.gained, back.lost, back.p_value) == (found.lost, found.gained, pytest.approx(found.p_value))


def test_the_interval_of_a_difference_by_hand():
    before = {str(i): i < 10 for i in range(100)}  # 10 won
    after = {str(i): 5 <= i < 25 for i in range(100)}  # 15 gained, 5 lost
    found = paired_test(before, after)
    assert (found.gained, found.lost, found.difference) == (15, 5, 0.1)
    assert found.ci_high - found.difference == pytest.approx(1.959964 * math.sqrt(20 - 100 / 100) / 100, rel=1e-6)


def test_mcnemar_by_hand():
    """Five games gained and none lost: 2 · (½)⁵. Its interval leaves out 0 and its p-value does not reach 0.05."""
    before = {str(i): i >= 5 for i in range(200)}
    found = paired_test(before, dict.fromkeys(before, True))
    assert (found.gained, found.lost, found.p_value) == (5, 0, 0.0625)
    assert found.ci_low > 0


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx(
        [0.03, 0.06, 0.06, 0.02]
    )  # Holm's own order: 4, 3, 2, 1 times
    assert holm([0.9, 0.6]) == [1.0, 1.0]
    assert (holm([0.2]), holm([])) == ([0.2], [])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_holm_rejects_what_its_step_down_rejects(p_values):
    """At every level the corrected values say what the procedure says: from the smallest on, as long as p ≤ α/(m−k)."""
    corrected = holm(p_values)
    assert all(p <= q <= 1 for p, q in zip(p_values, corrected))
    m = len(p_values)
    for alpha in (0.01, 0.05, 0.2):
        rejected, order = set(), sorted(range(m), key=lambda i: p_values[i])
        for k, number in enumerate(order):
            if p_values[number] * (m - k) > alpha:
                break
            rejected.add(number)
        assert {i for i in range(m) if corrected[i] <= alpha} == rejected


def test_policies_are_compared_on_the_same_games_only():
    with pytest.raises(ValueError, match=r"1 were played by one of the two only, e\.g\. b"):
        paired_test({"a": True, "b": True}, {"a": True})


def test_rows_of_the_table():
    table = outcomes([True, False, True, True])
    assert table.schema.equals(OUTCOMES)
    (row,) = summary(table)
    assert {name: row[name] for name in KEYS} == KEYS
    assert (row["games"], row["success"], row["mean_actions"], row["score"]) == (4, 0.75, 5.5, None)
    assert (row["ci_low"], row["ci_high"]) == wilson(3, 4)
    assert (row["generated"], row["prm_read"], row["world_steps"]) == (16.5, 0, 5.5)
    assert row["inadmissible"] == pytest.approx(4 / 22)
    assert row["by_kind"] == {
        "pick_and_place_simple": {"games": 2, "success": 0.5},
        "look_at_obj_in_light": {"games": 2, "success": 1.0},
    }


def test_every_game_is_played_once():
    with pytest.raises(ValueError, match="seen: 3 episodes for 4 games"):
        outcomes([True, True, True])


def test_wins_want_one_outcome_a_game():
    both = outcomes([True] * 4)
    assert wins(both, split="seen", decoding="greedy") == {game.id: True for game in GAMES}
    assert wins(both, iteration=0) == {}
    import pyarrow as pa

    twice = pa.concat_tables([both, outcomes([False] * 4, decoding="sample")])
    with pytest.raises(ValueError, match="not one outcome a game"):
        wins(twice, split="seen")
