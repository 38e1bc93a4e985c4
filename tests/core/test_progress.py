"""Long work tells how far it has come: every thirty seconds without a terminal, by a bar with one."""

import sys

import pytest

from agentprm_core import progress as module
from agentprm_core.progress import Lines, progress


@pytest.fixture
def clock(monkeypatch):
    """Seconds that the test decides."""
    now = [1000.0]
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    return now


def work(bar, clock, steps, seconds_each):
    for _ in range(steps):
        clock[0] += seconds_each
        bar.update()


def test_nothing_is_said_of_short_work(clock, capsys):
    work(Lines(29, "step"), clock, 29, 1.0)
    assert capsys.readouterr().err == ""


def test_a_line_every_thirty_seconds_with_rate_and_time_left(clock, capsys):
    work(Lines(1000, "step"), clock, 280, 0.25)
    assert capsys.readouterr().err.splitlines() == [
        "120 of 1000 steps, 4.0 steps/s, 3:40 left",
        "240 of 1000 steps, 4.0 steps/s, 3:10 left",
    ]


def test_slow_work_says_seconds_each_and_hours(clock, capsys):
    work(Lines(100, "game"), clock, 1, 75.0)
    assert capsys.readouterr().err == "1 of 100 games, 75.0 s/game, 2:03:45 left\n"


def test_what_was_done_before_does_not_count_for_the_rate(clock, capsys):
    work(Lines(100, "step", done=60), clock, 16, 2.0)
    assert capsys.readouterr().err == "75 of 100 steps, 2.0 s/step, 0:50 left\n"


def test_the_end_is_not_news(clock, capsys):
    work(Lines(1, "step"), clock, 1, 40.0)
    assert capsys.readouterr().err == ""


def test_without_a_terminal_there_are_lines_and_with_one_a_bar(monkeypatch, capsys):
    with progress(3, "step") as shown:
        assert isinstance(shown, Lines)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress(3, "step", done=1) as shown:
        shown.update()
        assert (shown.n, shown.total, shown.unit) == (2, 3, "step")
    assert "step" in capsys.readouterr().err
