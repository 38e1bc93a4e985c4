"""Watts that the machine draws while a stage works: its processor packages, and the GPUs that the stage uses.

Both have counters of the energy used so far: RAPL's files under ``/sys/class/powercap``, and NVML's of each GPU. The
mean power is what they move on by, over the time. They count all that runs on the machine. What cannot be read is left
out. Linux lets root alone read RAPL's files, unless somebody allows it.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import NamedTuple

POWERCAP = Path("/sys/class/powercap")
EVERY_S = 5.0
"""Seconds between looks. RAPL's counters begin again after some minutes, the shortest after two or three."""


class Counter(NamedTuple):
    """Energy used so far."""

    read: Callable[[], int]
    """Raises OSError or ValueError where it cannot be read."""
    joules: float
    """Of one unit."""
    wraps: int
    """Where it begins again at 0."""


class Meter:
    """Mean watts of some counters together. One of them that cannot be read leaves nothing to tell: the sum of the
    others would be too small. Neither does a time of less than ``least`` seconds: counters move on in jumps."""

    def __init__(self, counters: Sequence[Counter], least: float = EVERY_S) -> None:
        self._counters, self._joules, self._least = counters, 0.0, least
        self._start = self._last = time.monotonic()
        self._before = self._read()

    def look(self) -> None:
        """Book what the counters have moved on by. None may begin again twice between looks."""
        now = self._read()
        if self._before is not None and now is not None:
            moved = zip(self._counters, self._before, now, strict=True)
            self._joules += sum(of.joules * ((after - before) % of.wraps) for of, before, after in moved)
        self._before = now if self._before is not None else None
        self._last = time.monotonic()

    def watts(self) -> float | None:
        """From the first look to the last; None where there is nothing to tell."""
        seconds = self._last - self._start
        return self._joules / seconds if self._before and seconds >= self._least else None

    def _read(self) -> list[int] | None:
        try:
            return [counter.read() for counter in self._counters]
        except (OSError, ValueError):
            return None


def packages(root: Path) -> list[Counter]:
    """Of the processor packages. RAPL's other zones are parts of these, or the whole machine."""
    found = []
    for zone in sorted(root.glob("intel-rapl:*")):
        try:
            if (zone / "name").read_text().startswith("package-"):
                wraps = int((zone / "max_energy_range_uj").read_text())
                found.append(Counter(lambda energy=zone / "energy_uj": int(energy.read_text()), 1e-6, wraps))
        except (OSError, ValueError):
            return []
    return found


def used_gpus() -> list[Counter]:
    """Of the GPUs that torch sees; none before this process uses one, and without NVML."""
    try:
        cuda = sys.modules["torch"].cuda
        if not cuda.is_initialized():
            return []
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        names = [str(cuda.get_device_properties(i).uuid).removeprefix("GPU-") for i in range(cuda.device_count())]
        _asked(nvml.nvmlInit_v2)
        return [_gpu(nvml, f"GPU-{name}") for name in names]
    except (KeyError, AttributeError, OSError):  # no torch, or it is just being imported; no NVML, or an old one
        return []


def _gpu(nvml: ctypes.CDLL, uuid: str) -> Counter:
    handle = ctypes.c_void_p()
    _asked(nvml.nvmlDeviceGetHandleByUUID, uuid.encode(), ctypes.byref(handle))

    def read() -> int:
        millijoules = ctypes.c_ulonglong()
        _asked(nvml.nvmlDeviceGetTotalEnergyConsumption, handle, ctypes.byref(millijoules))
        return millijoules.value

    return Counter(read, 1e-3, 2**64)


def _asked(function: Callable[..., int], *arguments: object) -> None:
    if status := function(*arguments):
        raise OSError(f"NVML: status {status}")


class Power:
    """``with power.watched(): …`` measures; then ``power.watts()``. What lasts less than ``every`` seconds, the time
    between two looks, has no watts."""

    def __init__(
        self, root: Path = POWERCAP, gpus: Callable[[], list[Counter]] = used_gpus, every: float = EVERY_S
    ) -> None:
        self._root, self._gpus, self._every = root, gpus, every
        self._meters: dict[str, Meter] = {}

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Looks now and then, in a thread of its own."""
        self._meters = {"cpu_watts": Meter(packages(self._root), self._every)}
        ended = Event()
        thread = Thread(target=self._watch, args=(ended,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            self._look()

    def watts(self) -> dict[str, float]:
        """``cpu_watts`` and ``gpu_watts``, each where it could be read."""
        return {name: watts for name, meter in self._meters.items() if (watts := meter.watts()) is not None}

    def _watch(self, ended: Event) -> None:
        while not ended.wait(self._every):
            self._look()

    def _look(self) -> None:
        if "gpu_watts" not in self._meters and (used := self._gpus()):
            self._meters["gpu_watts"] = Meter(used, self._every)
        for meter in self._meters.values():
            meter.look()
