"""Compute at equal success, on curves whose answer is known."""

import pytest

from agentprm_core.search.efficiency import compute_to_reach, efficiency

DOUBLING = [(2.0**k, 0.1 * k) for k in range(9)]
"""Success grows by a tenth with every doubling."""


@pytest.mark.parametrize("success", [0.0, 0.1, 0.25, 0.8])
def test_between_points_compute_is_read_on_a_logarithmic_scale(success):
    assert compute_to_reach(DOUBLING[::-1], success) == pytest.approx(2 ** (10 * success))


def test_a_success_that_is_never_reached_or_was_there_from_the_first():
    assert compute_to_reach(DOUBLING, 0.81) is None
    assert compute_to_reach([(8.0, 0.5), (16.0, 0.4)], 0.3) == 8.0


def test_the_first_time_counts_where_a_curve_falls_again():
    assert compute_to_reach([(1.0, 0.1), (4.0, 0.5), (8.0, 0.2), (16.0, 0.6)], 0.4) == pytest.approx(4**0.75)


def test_a_curve_an_eighth_as_dear_is_eight_times_as_efficient():
    rival = [(8 * compute, success) for compute, success in DOUBLING]
    found = efficiency(DOUBLING, rival)
    assert found == pytest.approx({"rival_best": 0.8, "rival_compute": 2048.0, "compute": 256.0, "times": 8.0})
    assert efficiency(rival, DOUBLING)["times"] == pytest.approx(1 / 8)
    higher = [(compute, success + 0.1) for compute, success in DOUBLING]
    never = efficiency(DOUBLING, higher)
    assert never["rival_compute"] == pytest.approx(256.0)
    assert (never["compute"], never["times"]) == (None, None)


def test_of_two_points_at_one_compute_the_better_counts():
    assert compute_to_reach([(1.0, 0.1), (4.0, 0.5), (4.0, 0.2)], 0.5) == 4.0


def test_compute_is_positive():
    with pytest.raises(ValueError, match="positive amounts of compute, not 0"):
        compute_to_reach([(0.0, 0.1)], 0.5)
