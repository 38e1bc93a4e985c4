"""The unattended run on a GPU, at its small size on a CPU: every part reports, and one that fails stops no other."""

import json

import pytest

from benchmarks import gpu


def failing(device, small):
    raise RuntimeError("no kernel\nfor this device")


def test_a_part_that_fails_is_written_down_and_the_next_one_runs(tmp_path, monkeypatch):
    parts = {"one": failing, "two": lambda device, small: {"rates": {"turns_per_s": 5}}}
    monkeypatch.setattr(gpu, "PARTS", parts)
    report = gpu.measure(tmp_path / "out", "cpu", True, minutes=1)
    assert report["one"]["error"] == "RuntimeError: no kernel for this device"
    assert report["two"]["rates"] == {"turns_per_s": 5}
    assert json.loads((tmp_path / "out" / "gpu.json").read_text()) == report
    assert "| two | rates turns_per_s | 5 |" in (tmp_path / "out" / "gpu.md").read_text()


def test_no_part_is_begun_when_the_time_is_over(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "PARTS", {"one": failing})
    assert gpu.measure(tmp_path, "cpu", True, minutes=0)["one"] == {"skipped": "0 minutes are over"}


@pytest.mark.slow
def test_the_small_run_measures_all_that_a_cpu_can(tmp_path):
    report = gpu.measure(tmp_path, "cpu", True, minutes=5)
    assert not [name for name, part in report.items() if isinstance(part, dict) and "error" in part]
    assert all(rate["turns_per_s"] > 0 for name, rate in report["rollouts"].items() if name.endswith("at once"))
    sizes = [size for name, size in report["training"].items() if name != "seconds"]
    assert len(sizes) == 2 and all(0 < size["utilisation"] < 1.5 for size in sizes)
    assert report["attention"]["ours"]["ms"] > 0
    assert "skipped" in report["graph"]
    assert report["campaign_rollouts"]["episodes"] == 64 and report["campaign_rollouts"]["turns_per_s"] > 0


def test_some_parts_alone(tmp_path, monkeypatch):
    parts = {"one": failing, "two": lambda device, small: {}, "three": lambda device, small: {}}
    monkeypatch.setattr(gpu, "PARTS", parts)
    report = gpu.measure(tmp_path, "cpu", True, minutes=1, parts=["three"])
    assert [name for name in parts if name in report] == ["three"]
