"""Watts of a stage's work: from counters in a made folder, across their end, and nothing where one cannot be read."""

import ctypes
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tasks.frame import power
from tasks.frame.clock import Clock
from tasks.frame.power import Counter, Power, packages, used_gpus
from tasks.report import overview

WRAPS = 262_143_328_850


def zone(root: Path, name: str, of: str, energy: int) -> Path:
    """One of RAPL's; the file with its energy."""
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "name").write_text(f"{of}\n")
    (folder / "max_energy_range_uj").write_text(f"{WRAPS}\n")
    (folder / "energy_uj").write_text(f"{energy}\n")
    return folder / "energy_uj"


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Two packages, with zones beside them that are no packages; and a clock that is set by hand."""
    files = [zone(tmp_path, "intel-rapl:0", "package-0", 1_000_000), zone(tmp_path, "intel-rapl:1", "package-1", WRAPS)]
    for name, of in (("intel-rapl:0:0", "core"), ("intel-rapl:2", "psys"), ("intel-rapl-mmio:0", "package-0")):
        zone(tmp_path, name, of, 7)
    now = SimpleNamespace(seconds=100.0)
    monkeypatch.setattr(power, "time", SimpleNamespace(monotonic=lambda: now.seconds))
    return SimpleNamespace(root=tmp_path, files=files, now=now)


def test_watts_are_of_both_packages_also_where_a_counter_begins_again(machine):
    """In 10 s one uses 300 J, the other 200 J across the end of its counter."""
    meter = Power(machine.root, list, every=10)
    with meter.watched():
        machine.files[0].write_text(f"{301_000_000}\n")
        machine.files[1].write_text(f"{200_000_000}\n")
        machine.now.seconds += 10
    assert meter.watts() == {"cpu_watts": pytest.approx(50)}


def test_a_counter_that_begins_again_often_is_looked_at_often(machine):
    meter = power.Meter(packages(machine.root))
    for energy in (WRAPS // 2, WRAPS - 1, WRAPS // 2, WRAPS - 1):
        machine.now.seconds += 100
        machine.files[0].write_text(str(energy))
        meter.look()
    assert meter.watts() == pytest.approx(2 * WRAPS / 1e6 / 400, rel=1e-4)


@pytest.mark.parametrize("amiss", ["gone", "no number"])
@pytest.mark.parametrize("when", ["before", "while"])
def test_a_package_that_cannot_be_read_leaves_nothing_to_tell(machine, amiss, when):
    """The other one alone would be too little."""

    def spoil() -> None:
        machine.files[1].unlink() if amiss == "gone" else machine.files[1].write_text("")

    meter = Power(machine.root, list, every=10)
    if when == "before":
        spoil()
    with meter.watched():
        machine.now.seconds += 10
        if when == "while":
            spoil()
    assert meter.watts() == {}


def test_a_machine_without_counters_tells_nothing(tmp_path):
    meter = Power(tmp_path / "none", list)
    with meter.watched():
        pass
    assert meter.watts() == {}


HOUR = 3600
"""Between looks: none but those of the test."""


def test_gpus_are_metered_from_their_first_use_on(machine):
    """A GPU that draws 50 W, used from the third look on."""
    used = [[], [], [Counter(lambda: int(50 * machine.now.seconds), 1.0, 2**64)]]
    meter = Power(machine.root / "none", lambda: used.pop(0), every=HOUR)
    with meter.watched():
        for _ in range(5):
            machine.now.seconds += HOUR
            meter._look()
    assert used == [] and meter.watts() == {"gpu_watts": pytest.approx(50)}


@pytest.mark.parametrize(("seconds", "told"), [(0.001, {}), (HOUR - 1, {}), (HOUR, {"gpu_watts": pytest.approx(50)})])
def test_less_than_the_time_between_two_looks_tells_nothing(machine, seconds, told):
    """A counter that jumps while a millisecond is measured would give thousands of watts."""
    joules = [0, 50 * seconds]
    meter = Power(machine.root / "none", lambda: [Counter(lambda: joules[0], 1.0, 2**64)], every=HOUR)
    with meter.watched():
        meter._look()
        joules.pop(0)
        machine.now.seconds += seconds
    assert meter.watts() == told


def test_nvml_is_asked_for_the_gpus_that_torch_sees(monkeypatch):
    asked = []

    def of_uuid(uuid, handle) -> int:
        asked.append(uuid)
        handle._obj.value = 5
        return 0

    def energy(handle, found) -> int:
        assert handle.value == 5
        found._obj.value = 1234
        return 0

    cuda = SimpleNamespace(
        is_initialized=lambda: True,
        device_count=lambda: 2,
        get_device_properties=lambda i: SimpleNamespace(uuid=f"u{i}"),
    )
    nvml = SimpleNamespace(
        nvmlInit_v2=lambda: 0, nvmlDeviceGetHandleByUUID=of_uuid, nvmlDeviceGetTotalEnergyConsumption=energy
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(ctypes, "CDLL", lambda name: nvml)
    assert [(counter.read(), counter.joules) for counter in used_gpus()] == [(1234, 1e-3)] * 2
    assert asked == [b"GPU-u0", b"GPU-u1"]
    nvml.nvmlInit_v2 = lambda: 9
    assert used_gpus() == []
    cuda.is_initialized = lambda: False
    nvml.nvmlInit_v2 = lambda: pytest.fail("a process that uses no GPU asks nothing")
    assert used_gpus() == []


def test_the_clock_reports_watts_where_there_are_any(monkeypatch, machine):
    clock = Clock()
    assert "cpu_watts" not in clock.report()
    monkeypatch.setattr(clock, "_power", Power(machine.root, list, every=2))
    with clock.working():
        machine.files[0].write_text(f"{21_000_000}\n")
        machine.now.seconds += 2
    assert clock.report()["cpu_watts"] == pytest.approx(10)
    assert "gpu_watts" not in clock.report()


def test_the_reports_mean_weighs_stages_by_their_seconds():
    timings = [{"seconds": 10, "cpu_watts": 100}, {"seconds": 30, "cpu_watts": 20, "gpu_watts": 300}, {"seconds": 60}]
    assert overview._watts(timings) == [40.0, 300.0]
    assert overview._watts([{}, {"seconds": 60}]) == [None, None]
