"""Shaping: advantages by hand, the blend's ends, telescoping, the squashing, bad input."""

import numpy as np
import pytest

from agentprm_core.credit.shaping import blend, potential_shaped, reference_advantage, soft_labels

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
