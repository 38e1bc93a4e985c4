"""The coverage report: counts by hand, known variances, held-out figures on the solved corridor."""

import json

import numpy as np
import pytest

from agentprm_core.credit.coverage import coverage_report, held_out_ranking, held_out_returns, visit_table
from agentprm_core.credit.turns import turns_from_table
from agentprm_core.datasets import episodes_to_table
from tests.core.corridor import play, table


def test_visits_by_hand():
    key = np.array([1, 2, 2, 3, 3, 3, 4, 4, 4, 4])
    value = np.array([1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.5, 0.5, 0.5, 0.5])
    one, two, four = visit_table(key, value)
    assert one == {"from": 1, "to": 1, "keys": 1, "turns": 1, "return_variance": None, "q_variance": None}
    assert two == {"from": 2, "to": 2, "keys": 1, "turns": 2, "return_variance": 0.5, "q_variance": 0.25}
    assert (four["from"], four["to"], four["keys"], four["turns"]) == (3, 4, 2, 7)
    assert four["return_variance"] == pytest.approx((1 / 3 + 0) / 2)
    assert four["q_variance"] == pytest.approx((1 / 9 + 0) / 2)


def test_held_out_returns_by_hand():
    key, half = np.array([7, 7, 7, 8, 9, 9]), np.array([0, 0, 1, 1, 0, 1])
    value = np.array([0.0, 1.0, 1.0, 1.0, 0.2, 0.4])
    found = held_out_returns(key, value, half)
    # key 8 is known to one half only; Q̂ for the others is the other half's mean
    assert found["turns"] == 5 and found["share"] == pytest.approx(5 / 6)
    pairs = np.array([(1.0, 0.0), (1.0, 1.0), (0.5, 1.0), (0.4, 0.2), (0.2, 0.4)])
    assert found["mse"] == pytest.approx(((pairs[:, 0] - pairs[:, 1]) ** 2).mean())
    assert found["mse_of_mean"] == pytest.approx(pairs[:, 1].var())
    assert found["correlation"] == pytest.approx(np.corrcoef(pairs.T)[0, 1])
    assert [row["turns"] for row in found["by_visits"]] == [4, 1]


def test_ranking_by_hand():
    state = np.array([1] * 6 + [2] * 4)
    key = np.array([10, 11, 12, 10, 11, 12, 20, 21, 20, 21])
    half = np.array([0, 0, 0, 1, 1, 1, 0, 0, 1, 1])
    value = np.array([1.0, 0.5, 0.0, 1.0, 0.0, 0.5, 1.0, 0.0, 0.3, 0.3])
    found = held_out_ranking(state, key, value, half, margin=0.03)
    # 10>11 yes, 10>12 yes, 11>12 no, 20>21 tie
    assert (found["pairs"], found["agree"], found["ties"], found["accuracy"]) == (4, 2, 1, 0.625)
    assert found["ci_low"] < 0.625 < found["ci_high"]
    assert [(row["from"], row["to"], row["pairs"]) for row in found["by_visits"]] == [(1, 1, 4)]
    assert held_out_ranking(state, key, value, half, margin=0.6)["pairs"] == 2
    assert held_out_ranking(state, key, value, np.zeros(10, int), margin=0.03)["accuracy"] is None


def test_report_on_the_corridor():
    episodes = [play(i, i) for i in range(400)]
    turns = turns_from_table(episodes_to_table(episodes, iteration=0, method="", policy=""))
    report = coverage_report(turns, visit_key="state", gamma=0.9)
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    assert sum(row["turns"] for row in report["visits"]) == len(turns.turn_N)
    assert report["held_out"]["share"] == 1
    assert report["held_out"]["correlation"] > 0.5
    assert report["held_out"]["mse"] < 0.8 * report["held_out"]["mse_of_mean"]
    assert report["ranking"] == report["ranking"] | {"pairs": 4, "agree": 4}  # right is better in all four cells
    by_history = coverage_report(turns, visit_key="history", gamma=0.9)
    assert by_history["held_out"]["share"] < 1


def test_a_single_turn_has_figures_that_are_undefined():
    report = coverage_report(turns_from_table(table(("g", 0, ["a"], True))), visit_key="history", gamma=1)
    assert report["held_out"]["turns"] == 0 and report["held_out"]["correlation"] is None
