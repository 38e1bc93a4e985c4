"""How many GPUs a stage takes of the server's limit."""

from __future__ import annotations

from pathlib import Path

import pytest
from prefect.client.orchestration import get_client

from flows.gpus import LIMIT, NotSoMany, taken, wanted
from flows.graph import GraphStage
from flows.provision import provision

TRAINING, TABLE = GraphStage("sft", (), ("gpu",)), GraphStage("label@1", (), ())


def params(folder: Path, text: str) -> Path:
    (folder / "params.yaml").write_text(text)
    return folder


@pytest.mark.parametrize(
    ("compute", "count"),
    [
        ("{device: cpu, parallel: {processes: 4}}", 0),
        ("{device: cuda, parallel: null}", 1),
        ("{device: cuda, parallel: {processes: 4, sharding: none}}", 4),
    ],
)
def test_as_many_as_processes_train(tmp_path: Path, compute: str, count: int) -> None:
    root = params(tmp_path, f"compute: {compute}")
    assert (wanted(TRAINING, root), wanted(TABLE, root)) == (count, 0)


@pytest.mark.usefixtures("prefect_server")
@pytest.mark.xdist_group("prefect")
def test_they_are_held_while_it_runs_and_too_many_are_refused(tmp_path: Path) -> None:
    provision(3)
    root = params(tmp_path, "compute: {device: cuda, parallel: {processes: 2}}")
    with get_client(sync_client=True) as client:
        with taken(TRAINING, root):
            assert client.read_global_concurrency_limit_by_name(LIMIT).active_slots == 2
        assert client.read_global_concurrency_limit_by_name(LIMIT).active_slots == 0
    params(tmp_path, "compute: {device: cuda, parallel: {processes: 4}}")
    refused = r"stage sft: compute\.parallel\.processes is 4, and the server shares out 3 GPU"
    with pytest.raises(NotSoMany, match=refused), taken(TRAINING, root):
        pass
