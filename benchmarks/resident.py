"""The peak of a process's resident memory, on Linux."""

from __future__ import annotations

import re
from pathlib import Path


def peak_mb() -> float:
    """Of this program alone. ``ru_maxrss`` would count what the process held before exec, which is its parent's."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) / 1024
