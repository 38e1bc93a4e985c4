"""The table that ``make run`` ends with."""

from __future__ import annotations

from flows.summary import iterations_table


def test_a_row_reads_in_per_cent_with_its_interval() -> None:
    row = {"method": "agentprm", "iteration": 2, "split": "unseen", "decoding": "greedy", "games": 140}
    numbers = {"success": 0.5, "ci_low": 0.4181, "ci_high": 0.5819, "mean_actions": 12.34, "seconds": 61.7}
    header, line = iterations_table([{**row, **numbers}]).splitlines()
    assert line.split() == ["agentprm", "2", "unseen", "greedy", "140", "50.0", "41.8", "-", "58.2", "12.3", "62"]
    assert header.index("success") == line.index("50.0")
