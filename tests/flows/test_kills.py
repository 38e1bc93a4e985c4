"""Thirty SIGKILLs at random moments of small campaigns: each goes on, and ends in the same bytes."""

from __future__ import annotations

from pathlib import Path

from tests.flows.kills import campaigns, small, small_environment


def test_thirty_kills_leave_no_trace(tmp_path: Path) -> None:
    tally = campaigns(small(tmp_path / "fresh"), 30, 0, 0.7, small_environment())
    assert tally.differing == []
    assert (tally.kills, tally.same_bytes, tally.lost_episodes) == (30, 30, 0)
    assert tally.in_a_stage >= 10, "most kills must meet a stage"
