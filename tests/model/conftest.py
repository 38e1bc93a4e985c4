"""The toy world as an engine of its own name, for tests that play."""

import pytest

from agentprm_core import worlds


@pytest.fixture
def toy_engine(monkeypatch):
    worlds.world_spec.cache_clear()
    monkeypatch.setitem(worlds._OURS, "toy", "tests.model.toy:TOY")
    yield "toy"
    worlds.world_spec.cache_clear()
