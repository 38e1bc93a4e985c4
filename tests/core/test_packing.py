"""The plan of batches: every row once an epoch, within the budget, the same for the same seed."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentprm_core.training.columns import TrainColumns
from agentprm_core.training.packing import BatchPlan, Row, pack

lengths_of = st.lists(st.integers(1, 300), min_size=1, max_size=200)


@settings(max_examples=60)
@given(lengths_of, st.integers(50, 2000), st.integers(0, 5), st.integers(1, 3), st.integers(1, 4))
def test_every_row_once_an_epoch_within_the_budget(lengths, budget, seed, epochs, group):
    plan = BatchPlan(lengths, budget, seed, epochs=epochs, group=group)
    assert len(plan) % group == 0
    counts = Counter(row for batch in plan for row in batch)
    assert set(counts) == set(range(len(lengths)))
    assert min(counts.values()) >= epochs
    for batch in plan:
        assert len(batch) == 1 or sum(lengths[row] for row in batch) <= budget


@settings(max_examples=30)
@given(lengths_of, st.integers(0, 5))
def test_same_seed_same_plan_other_epoch_other_order(lengths, seed):
    plans = [list(BatchPlan(lengths, 500, seed, batches=12)) for _ in range(2)]
    assert plans[0] == plans[1]
    assert len(plans[0]) == 12


def test_a_batch_mixes_lengths():
    """Length tells the outcome: a batch of long episodes only would be a batch of lost ones."""
    lengths = np.array([50, 300] * 500)
    plan = BatchPlan(lengths, 2048, 0, epochs=1)
    shares = [np.mean([lengths[row] == 300 for row in batch]) for batch in plan]
    assert np.mean([0 < share < 1 for share in shares]) > 0.97


def test_rows_lie_end_to_end():
    rows = [Row(np.array([5, 6, 7], np.int32), TrainColumns(np.ones(3, np.float32)))]
    rows.append(Row(np.array([8, 9, 3], np.int32), TrainColumns.zeros(3), branches=[(1, 2)]))
    batch = pack(rows, [4, 2])
    assert batch.numbers.tolist() == [4, 2]
    assert batch.input_ids.tolist() == [5, 6, 7, 8, 9, 3]
    assert batch.position_ids.tolist() == [0, 1, 2, 0, 1, 2]
    assert batch.row.tolist() == [0, 0, 0, 1, 1, 1]
    assert batch.parent.tolist() == [0, 0, 1, 3, 3, 4]
    assert batch.branch.tolist() == [-1, -1, -1, -1, 0, 0]
    assert batch.columns.loss_weight.tolist() == [1, 1, 1, 0, 0, 0]


def test_no_rows_is_an_error():
    with pytest.raises(ValueError, match="no rows to train on"):
        BatchPlan([], 100, 0, epochs=1)
