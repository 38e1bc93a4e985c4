"""Shaping: advantages by hand, the blend's ends, telescoping, the squashing, bad input."""

import numpy as np
import pytest

from agentprm_core.credit.monte_carlo import monte_carlo_q
from agentprm_core.credit.shaping import (
    blend,
    potential_shaped,
    reference_advantage,
    scored_values,
    shaped_labels,
    soft_labels,
    visited_values,
)
from agentprm_core.credit.turns import turns_from_table
from agentprm_core.datasets import episodes_to_table
from tests.core.corridor import RIGHT, START, exact_q, play

VALUE, STARTS = (
    np.array([0.2, 0.5, 0.8, 0.4]),
    np.array([0, 3]),
)  # a three-turn episode that is won, a one-turn one lost


def test_advantage_by_hand_and_blend():
    advantage = reference_advantage(VALUE, np.array([1.0, 0.0]), STARTS, gamma=0.9)
    np.testing.assert_allclose(advantage, [0.9 * 0.5 - 0.2, 0.9 * 0.8 - 0.5, 1 - 0.8, 0 - 0.4])
    q = np.array([0.1, 0.2, 1.0, 0.0])
    np.testing.assert_array_equal(blend(q, advantage, alpha=0), q)
    np.testing.assert_allclose(blend(q, advantage, alpha=1), (advantage + 1) / 2)
    np.testing.assert_allclose(blend(q, advantage, alpha=0.5), (q + (advantage + 1) / 2) / 2)


def test_with_the_policys_own_exact_values_a_certain_action_has_no_advantage():
    steps = np.arange(5)
    value = 0.9 ** (4 - steps)  # V of a policy that wins for certain after these turns
    np.testing.assert_allclose(reference_advantage(value, np.array([1.0]), np.array([0]), gamma=0.9), 0, atol=1e-12)


def test_the_codes_variant():
    shaped = potential_shaped(np.array([1.0, 1.0, 1.0, -1.0]), VALUE, STARTS, gamma=1.0)
    np.testing.assert_allclose(shaped, [1.3, 1.3, 1.0, -1.0])  # no potential at a last turn
    labels = soft_labels(shaped)
    iqr = np.percentile(shaped, 75) - np.percentile(shaped, 25)
    np.testing.assert_allclose(labels, 1 / (1 + np.exp(-3 * (shaped - shaped.mean()) / iqr)))
    assert ((labels > 0) & (labels < 1)).all() and (np.argsort(labels) == np.argsort(shaped)).all()


GAMMA = 0.9
Q = exact_q(GAMMA)
V = {cell: RIGHT[cell] * Q[cell, "right"] + (1 - RIGHT[cell]) * Q[cell, "left"] for cell in RIGHT}


@pytest.fixture(scope="module")
def walked():
    """Turns of the corridor, and the cell, the exact Q and V of each."""
    episodes = [play(seed, seed) for seed in range(400)]
    turns = turns_from_table(episodes_to_table(episodes, iteration=1, method="policy", policy="x"))
    steps = [(int(turn.state_key.split()[1]), turn.action) for episode in episodes for turn in episode.turns]
    return turns, np.array([Q[step] for step in steps]), np.array([V[cell] for cell, _ in steps])


def test_values_from_visits_and_from_scores_are_those_of_the_corridor(walked):
    turns, q_N, v_N = walked
    nobody = np.zeros(len(q_N), bool)
    np.testing.assert_allclose(visited_values(turns, visit_key="state", side_N=nobody, gamma=GAMMA), v_N, atol=0.05)
    found = scored_values(q_N.astype(np.float32), turns, gamma=GAMMA)
    first = np.isin(np.arange(len(q_N)), turns.starts_E)
    np.testing.assert_allclose(found[~first], v_N[~first], atol=1e-6)
    assert len(set(found[first])) == 1  # one game
    assert found[first][0] == pytest.approx(V[START], abs=0.03)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_with_true_values_the_blend_takes_its_share_of_the_labels_noise_away(walked, alpha):
    turns, q_N, v_N = walked
    nobody = np.zeros(len(q_N), bool)
    noisy_N = monte_carlo_q(turns, gamma=GAMMA, visit_key="state", side_N=nobody, outcome="binary").q_N
    how = {"shaping": "blend", "alpha": alpha, "gamma": GAMMA, "visit_key": "state"}
    label_N = shaped_labels(turns, noisy_N, v_N, **how, side_N=nobody)
    exact_N = (1 - alpha) * q_N + alpha * (q_N - v_N + 1) / 2  # A = Q − V
    np.testing.assert_allclose(label_N - exact_N, (1 - alpha) * (noisy_N - q_N), atol=1e-12)
    assert np.abs(noisy_N - q_N).max() > 0.01


def test_the_codes_labels_by_a_dictionary(walked):
    turns, q_N, v_N = walked
    side_N = turns.episode_N % 3 == 0
    how = {"shaping": "potential", "alpha": 0.5, "gamma": GAMMA, "visit_key": "state"}
    label_N = shaped_labels(turns, q_N, v_N, **how, side_N=side_N)
    seen: dict[tuple, list[float]] = {}
    names = list(zip(turns.world_N.tolist(), turns.action_N.tolist(), side_N.tolist()))
    ends = set((np.append(turns.starts_E[1:], len(q_N)) - 1).tolist())
    won_N, length_N = turns.per_turn(turns.won_E), turns.per_turn(turns.lengths_E)
    for n, name in enumerate(names):
        q = GAMMA ** int(length_N[n] - 1 - turns.turn_N[n]) * (1 if won_N[n] else -1)
        seen.setdefault(name, []).append(q if n in ends else q + GAMMA * v_N[n + 1] - v_N[n])
    keys = {name: number for number, name in enumerate(seen)}
    expected = soft_labels(np.array([np.mean(values) for values in seen.values()]))
    np.testing.assert_allclose(label_N, expected[[keys[name] for name in names]], atol=1e-9)


def test_bad_input():
    with pytest.raises(ValueError, match=r"shaping.alpha: 2 is not in \[0, 1\]"):
        blend(VALUE, VALUE, alpha=2)
    with pytest.raises(ValueError, match=r"advantages between -3.0 and -3.0, not in \[-1, 1\]"):
        blend(VALUE, np.full(4, -3.0), alpha=0.5)
    with pytest.raises(ValueError, match="4 labels and 3 advantages"):
        blend(VALUE, VALUE[:3], alpha=0.5)
    with pytest.raises(ValueError, match=r"shaping.gamma: 0 is not in \(0, 1\]"):
        potential_shaped(VALUE, VALUE, STARTS, gamma=0)
    with pytest.raises(ValueError, match="4 values, 2 starts and 1 outcomes do not fit together"):
        reference_advantage(VALUE, np.ones(1), STARTS, gamma=1)
    with pytest.raises(ValueError, match=r"is 0\.5 throughout"):
        soft_labels(np.array([0.5, 0.5, 0.5, 0.5, 0.9]))
    with pytest.raises(ValueError, match="1 keys are too few"):
        soft_labels(np.array([0.5]))
