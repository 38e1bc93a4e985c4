"""The report that a flow leaves of an iteration on its page, from files as the stages leave them."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentprm_core.datasets import write_table
from flows import artifacts
from flows.graph import GraphStage
from tasks.frame import layout
from tasks.frame.order import ONCE, stages_of
from tasks.frame.stage import write_json
from tests.data.project import raw_params, write_project
from tests.data.test_compare import outcomes


def test_it_has_success_and_what_was_played_and_trained_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_project(tmp_path, raw_params())
    for number in (0, 1):
        write_table(outcomes(number, "greedy"), layout.outcomes(number))
    names = stages_of(1)
    for name in (*ONCE, *names):
        write_json({"episodes_played": 1000, "tokens_trained": 7}, layout.metrics(name.replace("@", "-")))
    left = {}
    monkeypatch.setattr(artifacts, "create_markdown_artifact", lambda key, markdown: left.update({key: markdown}))
    artifacts.publish_report(1, [GraphStage(name, (), ()) for name in names])
    (row,) = [line for line in left["iteration-1-report"].splitlines() if line.startswith("| unseen | greedy")]
    assert "58.3%" in row and "8,000" in row and "| 56 |" in row
