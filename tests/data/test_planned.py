"""The plan of a campaign beside the timings of its stages."""

import json
import sys

import pytest

from agentprm_core.errors import DataError
from benchmarks import planned
from tasks.frame.clock import write_timing
from tasks.frame.params import load_params
from tasks.frame.tracking import campaign_id
from tests.data.project import raw_params, write_project


@pytest.fixture
def campaign(tmp_path, monkeypatch):
    """A folder with parameters; two of its stages ran, one of them twice."""
    monkeypatch.chdir(tmp_path)
    write_project(tmp_path, raw_params("smoke", compute={"threads": 2}))
    of_campaign = campaign_id(load_params().as_dict())
    for stage, seconds in {"sft": 10.0, "policy@1": 4.0, "policy@2": 8.0, "games": 1.0}.items():
        write_timing(stage, of_campaign, {"seconds": 99.0, "work_cpu_seconds": seconds})
    return tmp_path


def test_stages_that_ran_stand_beside_their_plan(campaign):
    found = planned.held(campaign)
    assert [(row["stage"], row["runs"], row["took_s"]) for row in found["stages"]] == [
        ("sft", 1, 5.0),
        ("policy", 2, 3.0),
    ]
    expected = {row["stage"]: row["planned_s"] for row in found["stages"]}
    assert all(row["ratio"] == pytest.approx(row["planned_s"] / row["took_s"]) for row in found["stages"])
    assert found["ratio"] == pytest.approx((expected["sft"] + 2 * expected["policy"]) / (5.0 + 2 * 3.0))


def test_the_last_line_is_one_object(campaign, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["planned", "--campaign", str(campaign), "--json"])
    planned.main()
    table, *_, last = capsys.readouterr().out.splitlines()
    assert table == "| stage | runs | planned, s | took, s | planned / took |"
    assert {"stages", "ratio", "tflops"} == set(json.loads(last))


def test_folders_without_a_campaign_or_its_timings(tmp_path, monkeypatch):
    with pytest.raises(DataError, match=r"--campaign: .*params.yaml is not there"):
        planned.held(tmp_path)
    monkeypatch.chdir(tmp_path)
    write_project(tmp_path, raw_params("smoke"))
    with pytest.raises(DataError, match="has no timing of a stage that trains or plays: did they run here"):
        planned.held(tmp_path)
    write_project(tmp_path, raw_params("smoke", compute={"device": "cuda"}))
    with pytest.raises(DataError, match=r"compute.device: cuda is not allowed: cpu, whose seconds are counted"):
        planned.held(tmp_path)
