"""Group advantages by hand: GRPO by trajectory, GiGPO by anchor state."""

import numpy as np
import pyarrow as pa
import pytest

from agentprm_core.credit.group import anchors_alone, gigpo_advantages, grpo_advantages, istar_advantages
from agentprm_core.credit.turns import turns_from_table
from tests.core.corridor import table

ROWS = table(
    ("g", 0, ["a", "c"], True),
    ("g", 1, ["b"], False),
    ("h", 0, ["a"], True),
    ("h", 1, ["a"], True),
)


def test_a_replayed_turn_is_compared_with_nobody():
    methods = ["replayed" if n == 0 else "policy" for n in range(ROWS.num_rows)]
    rows = ROWS.set_column(ROWS.column_names.index("method"), "method", pa.array(methods))
    plain, reset = (
        gigpo_advantages(turns_from_table(t), gamma=0.5, omega=1.0) - grpo_advantages(turns_from_table(t))
        for t in (ROWS, rows)
    )
    assert plain[0] != 0 and reset[0] == 0


def test_a_replayed_turn_is_no_visit_and_has_no_step_reward():
    """The first turn of g's first episode: its second episode decided in that state alone."""
    methods = ["replayed" if n == 0 else "policy" for n in range(ROWS.num_rows)]
    turns = turns_from_table(ROWS.set_column(ROWS.column_names.index("method"), "method", pa.array(methods)))
    np.testing.assert_array_equal(anchors_alone(turns_from_table(ROWS), "state")[:3], [False, True, False])
    np.testing.assert_array_equal(anchors_alone(turns, "state")[:3], [False, True, True])
    rewards = istar_advantages(turns, np.array([0.0, 3.0, 1.0, 0.0, 0.0]), alpha=0.5) - grpo_advantages(turns)
    np.testing.assert_allclose(rewards, [0, 0.5, -0.5, 0, 0])


def test_grpo():
    np.testing.assert_allclose(grpo_advantages(turns_from_table(ROWS)), [1, 1, -1, 0, 0])


def test_gigpo():
    # at the start of g: returns 0.5 and 0; the state after a came once; h has no spread, whatever its states are
    turns = turns_from_table(ROWS)
    for key in ("state", "history"):
        np.testing.assert_allclose(gigpo_advantages(turns, gamma=0.5, omega=2.0, visit_key=key), [3, 1, -3, 0, 0])
    np.testing.assert_allclose(gigpo_advantages(turns, gamma=0.5, omega=0.0), grpo_advantages(turns))


def test_one_state_met_later_is_the_same_anchor():
    rows = table(("g", 0, ["a", "b"], True), ("g", 1, ["b", "a", "b"], False))
    at = rows.column_names.index("state_key")
    rows = rows.set_column(at, "state_key", pa.array(["s", "t", "s", "u", "s"]))
    step = gigpo_advantages(turns_from_table(rows), gamma=0.5, omega=1.0) - grpo_advantages(turns_from_table(rows))
    found = np.array([0.5, 0.0, 0.0])  # returns of the three turns in s
    np.testing.assert_allclose(step[[0, 2, 4]], (found - found.mean()) / found.std())


def test_bad_input():
    with pytest.raises(ValueError, match=r"method.omega: -1 is negative"):
        gigpo_advantages(turns_from_table(ROWS), gamma=0.9, omega=-1)
