"""What each rival's advantages make of a policy gradient, in expectation, on a world whose gradient is enumerated.

Every group of episodes that a policy can play is enumerated with its chance, so expectations are exact.
"""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentprm_core.credit.group import (
    anchors_alone,
    gigpo_advantages,
    grpo_advantages,
    istar_advantages,
    loop_advantages,
    progress,
)
from agentprm_core.credit.state_values import state_gae
from agentprm_core.credit.trees import Leaf, leaf_advantages, owners, turn_advantages
from agentprm_core.credit.turns import turns_from_table
from agentprm_core.datasets import episodes_to_table
from agentprm_core.types import Episode, Turn
from tests.core import crossroads
from tests.core.crossroads import DEPTH, PATHS, STATES, WINS, chance, episode, gradient, scores, value


def turns_of(episodes):
    return turns_from_table(episodes_to_table(episodes, iteration=1, method="policy", policy="p"))


def expected(advantages, size: int) -> np.ndarray:
    """[7]: E over groups of ``size`` episodes of the mean over episodes of Σ_t A_t ∇ log π(a_t|s_t)."""
    groups = list(product(PATHS, repeat=size))
    names = [f"g{number:05}" for number in range(len(groups))]
    played = [episode(path, i, name) for name, group in zip(names, groups) for i, path in enumerate(group)]
    advantage_GET = advantages(turns_of(played)).reshape(len(groups), size, DEPTH)
    total = np.zeros(len(STATES))
    for group, advantage_ET in zip(groups, advantage_GET):
        weight = np.prod([chance(path) for path in group]) / size
        total += weight * sum(advantage_T @ scores(path) for path, advantage_T in zip(group, advantage_ET))
    return total


def test_the_enumerated_gradient_is_that_of_the_success():
    step = 1e-6
    slopes = [
        (crossroads.success(crossroads.THETA + step * unit) - crossroads.success(crossroads.THETA - step * unit))
        / (2 * step)
        for unit in np.eye(len(STATES))
    ]
    np.testing.assert_allclose(gradient(), slopes, atol=1e-9)


@pytest.mark.parametrize("size", [2, 3])
def test_loops_expectation_is_the_policy_gradient(size):
    np.testing.assert_allclose(expected(loop_advantages, size), gradient(), atol=1e-12)


def test_grpos_expectation_of_pairs_is_the_policy_gradient_and_of_more_a_multiple():
    """Of two episodes that end otherwise one gets 1 and one −1, which is twice the leave-one-out advantage halved."""
    np.testing.assert_allclose(expected(grpo_advantages, 2), gradient(), atol=1e-12)
    found, p = expected(grpo_advantages, 3), crossroads.success()
    # of three with k won: (won: √((3−k)/k), lost: −√(k/(3−k))); by hand E = (p(1−p)·2·…) is a multiple of the gradient
    factor = found @ gradient() / (gradient() @ gradient())
    np.testing.assert_allclose(found, factor * gradient(), atol=1e-12)
    by_hand = sum(
        chances * (np.sqrt((3 - k) / k) + np.sqrt(k / (3 - k))) * k * (3 - k) / 3 / (3 * p * (1 - p))
        for k, chances in ((1, 3 * p * (1 - p) ** 2), (2, 3 * p**2 * (1 - p)))
    )
    assert factor == pytest.approx(by_hand)


@pytest.mark.parametrize("gae_lambda", [1.0, 0.9, 0.3, 0.0])
def test_ppos_expectation_under_the_true_values_is_the_policy_gradient(gae_lambda):
    def advantages(turns):
        value_N = np.tile(0.0, len(turns.turn_N))
        for number, path in enumerate(PATHS):
            value_N[number * DEPTH : (number + 1) * DEPTH] = [value(path[:t]) for t in range(DEPTH)]
        return state_gae(turns, value_N, gamma=1.0, gae_lambda=gae_lambda)[0]

    np.testing.assert_allclose(expected(advantages, 1), gradient(), atol=1e-12)


def test_with_lambda_1_any_values_do():
    """λ = 1 is the return minus V(s), and a baseline of the state changes no expectation."""
    rng = np.random.default_rng(0)
    guess = dict(zip(STATES, rng.normal(size=len(STATES))))

    def advantages(turns):
        value_N = np.array([guess[path[:t]] for path in PATHS for t in range(DEPTH)])
        return state_gae(turns, value_N, gamma=1.0, gae_lambda=1.0)[0]

    np.testing.assert_allclose(expected(advantages, 1), gradient(), atol=1e-12)


def test_gae_of_values_by_hand():
    """Two episodes of three and one turns, γ = 0.5, λ = 0.5: the slow definition."""
    played = [episode("LLR"), Episode("h", 0, 0, (Turn("x", "left", ("left",), True, "s"),), False)]
    turns, value_N = turns_of(played), np.array([0.2, 0.4, 0.6, 0.3])
    advantage_N, target_N = state_gae(turns, value_N, gamma=0.5, gae_lambda=0.5)
    deltas = [0.5 * 0.4 - 0.2, 0.5 * 0.6 - 0.4, 1 - 0.6]
    slow = [sum(0.25**k * delta for k, delta in enumerate(deltas[t:])) for t in range(3)]
    np.testing.assert_allclose(advantage_N, [*slow, -0.3])
    np.testing.assert_allclose(target_N, advantage_N + value_N)
    with pytest.raises(ValueError, match="3 values for 4 turns"):
        state_gae(turns, value_N[:3], gamma=0.5, gae_lambda=0.5)


def test_tree_grpos_expectation_is_the_gradient_of_what_follows_the_fork():
    """A chain and one fork at turn t: within the tree the shared turns get 0 together, and the others the gradient of
    the success from the fork on, as of any pair."""
    for t in (1, 2):
        total, wanted = np.zeros(len(STATES)), np.zeros(len(STATES))
        for first in PATHS:
            for second in [path for path in PATHS if path[:t] == first[:t]]:
                tree = [Leaf(DEPTH, float(first in crossroads.WINS)),
                        Leaf(DEPTH, float(second in crossroads.WINS), 0, t)]  # fmt: skip
                ((own, forked),) = turn_advantages([tree])
                assert own[:t].sum() == pytest.approx(0) and not forked[:t].any()
                weight = chance(first) * chance(second, start=t)
                total += weight / 2 * (own @ scores(first) + forked @ scores(second))
        for path in PATHS:
            if path in crossroads.WINS:
                wanted += chance(path) * scores(path)[t:].sum(0)
        np.testing.assert_allclose(total, 2 * wanted, atol=1e-12)  # of the one tree in its game both parts are the same


def test_tree_advantages_by_hand():
    """Two trees of a game: of two episodes, won and lost, and of three, where a fork was forked: lost, lost, won."""
    trees = [
        [Leaf(3, 1.0), Leaf(4, 0.0, 0, 1)],
        [Leaf(3, 0.0), Leaf(4, 0.0, 0, 1), Leaf(3, 1.0, 1, 2)],
    ]
    assert owners(trees[1]) == [[0, 0, 0], [0, 1, 1, 1], [0, 1, 2]]
    among, spread = np.array([1, 0, 0, 0, 1.0]), np.sqrt(0.4 * 0.6)
    everywhere = (among - 0.4) / spread
    within = np.sqrt(2 / 9)
    first, second = leaf_advantages(trees)
    np.testing.assert_allclose(first, [1 + everywhere[0], -1 + everywhere[1]])
    np.testing.assert_allclose(second, np.array([-1 / 3, -1 / 3, 2 / 3]) / within + everywhere[2:])
    chain, fork, of_fork = turn_advantages(trees)[1]
    np.testing.assert_allclose(chain, [second.sum(), second[0], second[0]])
    np.testing.assert_allclose(fork, [0, second[1] + second[2], second[1], second[1]])
    np.testing.assert_allclose(of_fork, [0, 0, second[2]])


REWARDS = st.lists(st.floats(0, 1, allow_subnormal=False, width=32), min_size=2, max_size=6)


def group(rewards):
    return [
        Episode("g", n, 0, (Turn("x", "left", ("left",), True, "s"),) * 2, reward >= 1, reward=reward)
        for n, reward in enumerate(rewards)
    ]


@settings(max_examples=40)
@given(REWARDS)
def test_leave_one_out_sums_to_zero_and_is_the_slow_definition(rewards):
    found = loop_advantages(turns_of(group(rewards)))[::2]
    assert found.sum() == pytest.approx(0, abs=1e-6)
    slow = [r - np.mean(rewards[:i] + rewards[i + 1 :]) for i, r in enumerate(rewards)]
    np.testing.assert_allclose(found, slow, atol=1e-6)


@settings(max_examples=40)
@given(REWARDS, st.floats(0.125, 1, width=32))
def test_a_constant_more_for_everybody_changes_no_advantage(rewards, shift):
    """Halved, so that what is added stays in [0, 1]."""
    lower, higher = [r / 2 for r in rewards], [r / 2 + shift / 2 for r in rewards]
    if 0 < np.std(lower) < 1e-3:
        return  # what float32 leaves of the difference decides there
    for advantages in (loop_advantages, grpo_advantages):
        low, high = (advantages(turns_of(group(values))) for values in (lower, higher))
        np.testing.assert_allclose(low, high, atol=1e-3)


def test_an_only_episode_has_nothing_to_be_compared_with():
    assert not loop_advantages(turns_of([episode("LLR")])).any()


def test_istar_by_hand():
    """Step rewards are standardised over the whole game, and weigh α beside GRPO's."""
    turns = turns_of([episode("LLR"), episode("LLL", 1), episode("RRR", 0, "h")])
    reward_N = np.array([1.0, 2.0, 3.0, 1.0, 2.0, 3.0, 5.0, 5.0, 5.0])
    step = np.array([-1, 0, 1, -1, 0, 1]) * np.sqrt(1.5)
    found = istar_advantages(turns, reward_N, alpha=0.5)
    np.testing.assert_allclose(found, [*(np.array([1, 1, 1, -1, -1, -1]) + 0.5 * step), 0, 0, 0])
    np.testing.assert_allclose(istar_advantages(turns, reward_N, alpha=0.0), grpo_advantages(turns))


def implicit(path: str, beta: float) -> np.ndarray:
    """[3]: β [log π*(a|s) − log π(a|s)] under π*(path) ∝ π(path) exp(R / β), where DPO on whole episodes ends when
    preferences follow β (Rafailov et al. 2023, eq. 4)."""

    def soft(way: str) -> float:
        ends = [end for end in PATHS if end.startswith(way)]
        return beta * np.log(sum(chance(end, start=len(way)) * np.exp((end in WINS) / beta) for end in ends))

    return np.diff([soft(path[:t]) for t in range(DEPTH + 1)])


@pytest.mark.parametrize("beta", [0.3, 1e4])
def test_the_best_implicit_rewards_of_an_episode_add_up_to_its_outcome(beta):
    """They are what each turn adds to the soft value: with a large β the advantage, whose gradient is the policy's."""
    start = beta * np.log(sum(chance(path) * np.exp((path in WINS) / beta) for path in PATHS))
    for path in PATHS:
        assert implicit(path, beta).sum() == pytest.approx((path in WINS) - start)
    if beta > 1:
        advantages = [np.diff([value(path[:t]) for t in range(DEPTH + 1)]) for path in PATHS]
        np.testing.assert_allclose([implicit(path, beta) for path in PATHS], advantages, atol=1e-3)
        found = sum(chance(path) * implicit(path, beta) @ scores(path) for path in PATHS)
        np.testing.assert_allclose(found, gradient(), atol=1e-4)


@pytest.mark.parametrize("beta", [0.3, 1e4])
def test_what_istar_adds_to_grpo_points_as_the_gradient_does(beta):
    """Standardised in each group, so the direction alone: its cosine with the gradient is nearly 1."""

    def added(turns):
        reward_N = np.concatenate([implicit(path, beta) for group in product(PATHS, repeat=2) for path in group])
        return istar_advantages(turns, reward_N, alpha=1.0) - grpo_advantages(turns)

    step = expected(added, 2)
    assert step @ gradient() / np.linalg.norm(step) / np.linalg.norm(gradient()) > 0.95


def test_progress_of_the_true_q_is_the_advantage():
    """In a deterministic world Q(s_{t−1}, a_{t−1}) is γ V(s_t)."""
    gamma = 0.9
    turns = turns_of([episode(path, n) for n, path in enumerate(PATHS)])
    q = [gamma ** (DEPTH - 1 - t) * value(path[: t + 1]) for path in PATHS for t in range(DEPTH)]
    found = progress(turns, np.array(q), gamma=gamma).reshape(-1, DEPTH)
    for path, advantage_T in zip(PATHS, found):
        assert advantage_T[0] == 0
        for t in (1, 2):
            v = gamma ** (DEPTH - 1 - t) * value(path[:t])
            assert advantage_T[t] == pytest.approx(gamma ** (DEPTH - 1 - t) * value(path[: t + 1]) - v)


def test_gigpo_asks_the_prm_where_a_state_came_once():
    """LLR and LRL part after the first turn: their first two turns are in states that both met, the third is not."""
    turns = turns_of([episode("LLR"), episode("LRL", 1)])
    alone = anchors_alone(turns, "state")
    np.testing.assert_array_equal(alone, [False, False, True, False, False, True])
    progress_N = np.array([9.0, 9.0, 0.4, 9.0, 9.0, 0.2])
    how = {"gamma": 0.5, "omega": 2.0}
    plain = gigpo_advantages(turns, **how)
    mixed = gigpo_advantages(turns, **how, progress_N=progress_N)
    np.testing.assert_allclose(mixed - plain, [0, 0, 2.0, 0, 0, -2.0])
