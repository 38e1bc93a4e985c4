"""How scorers order paths of one game, on episodes written by hand."""

import numpy as np
import pytest

from agentprm_core.types import Episode, Turn
from benchmarks.path_order import correct_searches, paths_in_order, table


def episode(game: str, index: int, actions: str, won: bool) -> Episode:
    turns = tuple(Turn("", action, (), True, "") for action in actions)
    return Episode(game, index, 0, turns, won=won)


PLAYED = [
    episode("a", 0, "xyzw", True),  # the last action wins and is not compared
    episode("a", 1, "xvv", False),  # parts from it at the second turn
    episode("b", 0, "pq", True),
    episode("b", 1, "rs", False),
    episode("c", 0, "x", True),  # never lost
    episode("d", 0, "x", False),  # never won
]
FIRST = [np.array(scores) for scores in ([0, 5, 1, 0], [9, 1, 2], [3, 0], [3, 9], [0], [0])]


def test_won_paths_are_compared_with_lost_ones_of_their_game_from_where_they_part():
    """Game a: 5 > 1 is right and 1 > 2 is not; game b: 3 = 3 is half, and its second turn is the won one's last."""
    found = paths_in_order({"prm": FIRST}, PLAYED, seed=0)
    assert (found["games"], found["pairs"]) == (2, 3)
    assert found["prm"]["accuracy"] == (1 / 2 + 1 / 2) / 2


def test_games_count_alike_and_scorers_are_compared_on_the_same_pairs():
    other = [-scores for scores in FIRST]
    other[2], other[3] = np.array([1, 0]), np.array([0, 0])
    found = paths_in_order({"prm": FIRST, "likelihood": other}, PLAYED, seed=0)
    assert found["likelihood"]["accuracy"] == (1 / 2 + 1) / 2
    over = found["over_likelihood"]
    assert over["difference"] == pytest.approx(-1 / 4)
    assert over["difference_low"] == -1 / 2 and over["difference_high"] == 0


def test_without_a_game_both_won_and_lost_there_is_no_figure():
    found = paths_in_order({"prm": FIRST[4:], "likelihood": FIRST[4:]}, PLAYED[4:], seed=0)
    assert (found["games"], found["pairs"]) == (0, 0)
    assert found["prm"]["accuracy"] is None and found["over_likelihood"]["difference"] is None


def test_the_table_says_what_the_prm_is_over_the_likelihood():
    states = {
        "ranking": {"accuracy": 0.6, "pairs": 12},
        "ranking_over_likelihood": {"difference": 0.1, "difference_low": -0.05, "difference_high": 0.25},
    }
    paths = paths_in_order({"prm": FIRST, "likelihood": FIRST}, PLAYED, seed=0)
    test = {"difference": 0.05, "ci_low": 0.01, "ci_high": 0.09, "p_value": 0.021}
    search = {"prm": 0.7, "over_untrained_likelihood": test, "over_constant": {**test, "p_value": 0.3}}
    row = {"iteration": 2, "world": "toy", "states": states, "paths": paths, "search": search}
    correct_searches([row, {"search": None}])
    cells = [cell.strip() for cell in table([row]).splitlines()[-1].strip("|").split("|")]
    assert cells == [
        "2", "toy", "60.0 %", "12", "+10.0 [-5.0, +25.0]", "50.0 %", "2", "+0.0 [+0.0, +0.0]",
        "70.0 %", "+5.0 [+1.0, +9.0], p 0.021", "0.042", "+5.0 [+1.0, +9.0], p 0.3", "0.3",
    ]  # fmt: skip
