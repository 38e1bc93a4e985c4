"""What all tests share: the published games, where this machine has them; which tests are unit tests, and how long one
may take; the examples that hypothesis draws, which are the same in every run unless HYPOTHESIS_PROFILE is ``random``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Tests share their cores: a slow example is no fault.
settings.register_profile("same", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("random", settings.get_profile("same"), derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

_GIT = {"commit.gpgSign": "false", "core.hooksPath": os.devnull, "core.autocrlf": "false"}
"""Over what the user has: tests commit without signatures and hooks."""
for _number, (_key, _value) in enumerate(_GIT.items()):
    os.environ |= {f"GIT_CONFIG_KEY_{_number}": _key, f"GIT_CONFIG_VALUE_{_number}": _value}
os.environ["GIT_CONFIG_COUNT"] = str(len(_GIT))
os.environ["DVC_NO_ANALYTICS"] = "true"  # `dvc init` would leave a process behind, in the test's folder

PUBLISHED = os.environ.get("ALFWORLD_DATA")
"""Read before any test imports alfworld, which sets it to a folder of its own."""

COMPACTED = Path(__file__).resolve().parents[2] / "shared" / "data" / "alfworld"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """``integration`` on the tests of flows and on slow ones; ``unit`` on all that are not integration. Slow ones may
    take an hour unless they say otherwise."""
    for item in items:
        if item.get_closest_marker("slow") and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(3600))
        if "flows" in item.path.parts or item.get_closest_marker("slow"):
            item.add_marker("integration")
        if item.get_closest_marker("integration") is None:
            item.add_marker("unit")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """One thread, also for fixtures of a module. A stage that ran in this process left as many as its parameters ask
    for: of tests that run side by side on as many cores each would wait for the other's."""
    if (torch := sys.modules.get("torch")) is not None and torch.get_num_threads() != 1:
        torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def nothing_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage in this process starts none that imports MLflow: what it said stays in its spool, for ``flush``."""
    monkeypatch.setattr("tasks.frame.tracking.start_sender", lambda path: None)


@pytest.fixture(scope="session")
def alfworld_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a published tree with at least valid_seen: ALFWORLD_DATA, or unpacked from ../shared/data."""
    if PUBLISHED is not None:
        return Path(PUBLISHED)
    unpack = COMPACTED / "unpack.py"
    if not unpack.exists():
        pytest.skip(f"no published ALFWorld games: ALFWORLD_DATA is not set and {COMPACTED} is not there")
    root = tmp_path_factory.mktemp("alfworld_data")
    subprocess.run([sys.executable, unpack, root, "--split", "valid_seen"], check=True, capture_output=True)
    return root
