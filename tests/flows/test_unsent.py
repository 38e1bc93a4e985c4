"""What stages could not send is sent when a campaign ends, and it is said; where there is nothing, nothing is."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.unsent import send_the_rest
from tests.data.test_spool import two_stages
from tests.waiting import nobody_listens


def test_what_two_stages_left_is_sent_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said: list[str] = []
    send_the_rest(said.append)
    assert said == []
    with nobody_listens() as port:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{port}")
        two_stages()
        send_the_rest(said.append)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    send_the_rest(said.append)
    assert "MLflow is away" in said[0] and "2 files stay" in said[0]
    assert said[1:] == ["sent what 2 stages had to say"]
    send_the_rest(said.append)
    assert len(said) == 2
