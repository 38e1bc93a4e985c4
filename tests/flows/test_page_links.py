"""The links that a campaign leaves on its page in Prefect: to its run in MLflow, to its report and to its gallery."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from flows import artifacts, campaign
from tasks.frame import layout
from tasks.report import overview


@pytest.fixture
def links(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """{key: link} of what is left, where MLflow is at ``http://here``."""
    left: dict[str, str] = {}
    monkeypatch.setattr(artifacts, "create_link_artifact", lambda key, link, link_text: left.update({key: link}))
    monkeypatch.setattr(artifacts, "mlflow_ui_url", lambda: "http://here")
    return left


def ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A campaign without stages, and without what it leaves but links."""
    for name in ("publish_gates", "publish_stages", "publish_iterations_table", "send_the_rest"):
        monkeypatch.setattr(campaign, name, lambda *given: None)
    monkeypatch.setattr(campaign, "read_graph", lambda root: ())
    monkeypatch.setattr(campaign, "steps", lambda graph: ())
    monkeypatch.setattr(campaign, "run_ready", lambda *given, at_once: [])
    monkeypatch.setattr(campaign, "get_run_logger", lambda: SimpleNamespace(info=print))
    none = cast(Any, None)
    campaign._campaign(cast(Any, SimpleNamespace(root=".")), none, none, at_once=1)


def test_they_lead_to_what_compare_logs(monkeypatch: pytest.MonkeyPatch, links: dict[str, str]) -> None:
    """Each folder is logged under its own name."""
    runs = {"campaign": "c0", "compare": "c1"}
    monkeypatch.setattr(artifacts, "_run", lambda task, number: ("7", runs[task]))
    ended(monkeypatch)
    assert links.pop("campaign-mlflow").startswith("http://here/#/experiments/7/runs/c0?")
    files = "http://here/#/experiments/7/runs/c1/artifacts"
    assert links == {
        "campaign-report": f"{files}/{layout.REPORTS.name}/{overview.PAGE}",
        "campaign-gallery": f"{files}/{layout.GALLERY.name}/index.html",
    }


def test_there_are_none_where_no_stage_has_a_run(monkeypatch: pytest.MonkeyPatch, links: dict[str, str]) -> None:
    monkeypatch.setattr(artifacts, "_run", lambda task, number: None)
    ended(monkeypatch)
    assert links == {}
