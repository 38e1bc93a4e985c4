"""Every estimator against the exact Q of a corridor solved by linear algebra: bias, variance, correlation."""

from functools import lru_cache

import numpy as np
import pytest
import torch

from agentprm_core.credit.branching import branching_q, points_of_episode
from agentprm_core.credit.gae import effective_discount, gae_targets
from agentprm_core.credit.monte_carlo import monte_carlo_q
from agentprm_core.credit.turns import turns_from_table
from agentprm_core.datasets import episodes_to_table
from tests.core.corridor import GAME, Corridor, exact_q, play, play_on

GAMMA, EPISODES, REPEATS = 0.9, 60, 20


@lru_cache
def dataset(seed):
    return [play(seed * 10_000 + i, i) for i in range(EPISODES)]


def cell_of(turn):
    return int(turn.state_key.split()[1])


def truth_of(episodes, outcome="binary", gamma=GAMMA):
    q = exact_q(gamma, outcome)
    return np.array([q[cell_of(t), t.action] for e in episodes for t in e.turns])


def monte_carlo(episodes, key, outcome="binary"):
    turns = turns_from_table(episodes_to_table(episodes, iteration=0, method="", policy=""))
    side = np.zeros(len(turns.turn_N), bool)
    return monte_carlo_q(turns, gamma=GAMMA, visit_key=key, side_N=side, outcome=outcome).q_N


def gae(episodes, gamma, gae_lambda, model):
    """Targets from M = ``model``'s q of each turn, flattened over the turns there are."""
    lengths = torch.tensor([e.length for e in episodes])
    values = torch.zeros(len(episodes), int(lengths.max()), dtype=torch.float64)
    for row, e in zip(values, episodes):
        row[: e.length] = torch.tensor([model[cell_of(t), t.action] for t in e.turns])
    won = torch.tensor([float(e.won) for e in episodes])
    found = gae_targets(values, lengths, won, gamma=gamma, gae_lambda=gae_lambda)
    return found.q_BT[found.mask_BT].numpy()


def error_at(estimator, gamma=GAMMA, cell=2, action="right"):
    """Bias, its standard error, and standard deviation of the target at one (s,a), over repeated datasets."""
    errors = []
    for seed in range(REPEATS):
        episodes = dataset(seed)
        at = [cell_of(t) == cell and t.action == action for e in episodes for t in e.turns]
        errors.append((estimator(episodes) - truth_of(episodes, gamma=gamma))[at])
    means = np.array([e.mean() for e in errors])
    return means.mean(), means.std() / np.sqrt(REPEATS), np.concatenate(errors).std()


def test_the_exact_q_is_that_of_long_simulation():
    won = np.mean([GAMMA ** (e.length - 1) * e.won for e in map(play, range(4000)) if e.turns[0].action == "right"])
    assert won == pytest.approx(exact_q(GAMMA)[2, "right"], abs=0.02)
    assert exact_q(1.0)[4, "right"] == 1 and exact_q(1.0)[1, "left"] == 0
    assert exact_q(GAMMA, "signed")[1, "left"] == 0


def test_monte_carlo_is_unbiased_and_merging_states_lowers_its_variance():
    by_state = error_at(lambda episodes: monte_carlo(episodes, "state"))
    by_history = error_at(lambda episodes: monte_carlo(episodes, "history"))
    for bias, error, _ in (by_state, by_history):
        assert abs(bias) < 3 * error + 0.01
    assert by_state[2] < 0.6 * by_history[2]


def test_branching_is_unbiased_and_its_variance_falls_as_one_over_rollouts():
    point = next(iter(points_of_episode(Corridor(), GAME, play(1))))
    truth = truth_of([play(1)], "signed")[0]

    def estimates(rollouts):
        options = dict(rollouts=rollouts, gamma=GAMMA, outcome="signed")
        return np.array([branching_q([point], play_on, seed=s, **options).q_P[0] for s in range(400)])

    few, many = estimates(2), estimates(8)
    assert few.mean() == pytest.approx(truth, abs=3 * few.std() / 20)
    assert many.mean() == pytest.approx(truth, abs=3 * many.std() / 20)
    assert few.var() / many.var() == pytest.approx(4, rel=0.35)


@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_gae_reproduces_the_exact_q_and_lambda_costs_variance(gamma):
    spreads = []
    for gae_lambda in (0.5, 0.9, 1.0):
        discount = effective_discount(gamma, gae_lambda)
        model = exact_q(discount)
        bias, error, spread = error_at(
            lambda episodes, m=model, gae_lambda=gae_lambda: gae(episodes, gamma, gae_lambda, m), discount
        )
        assert abs(bias) < 3 * error
        spreads.append(spread)
    assert spreads == sorted(spreads)
    assert spreads[0] < 0.4 * spreads[-1]


def test_gae_inherits_the_errors_of_the_model_as_lambda_falls():
    wrong = {state_action: 0.5 for state_action in exact_q(1.0)}
    bias = [
        abs(error_at(lambda episodes, gae_lambda=gae_lambda: gae(episodes, 1.0, gae_lambda, wrong), 1.0, 1)[0])
        for gae_lambda in (0.5, 1.0)
    ]
    assert bias[0] > 2 * bias[1]


def test_correlation_with_the_exact_q_of_all_three():
    """60 episodes: what each costs and gives. One dataset, all turns."""
    episodes = dataset(0)
    exact, games = truth_of(episodes, "signed"), {GAME.id: GAME}
    points = [p for e in episodes for p in points_of_episode(Corridor(), games[GAME.id], e)]
    found = {
        "history": monte_carlo(episodes, "history", "signed"),
        "state": monte_carlo(episodes, "state", "signed"),
        "branching": branching_q(points, play_on, rollouts=8, gamma=GAMMA, seed=0, outcome="signed").q_P,
    }
    correlation = {name: np.corrcoef(q, exact)[0, 1] for name, q in found.items()}
    assert correlation["state"] > correlation["branching"] > correlation["history"] > 0.5
