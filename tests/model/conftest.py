"""The toy world as an engine of its own name, for tests that play; and one thread, since the models are tiny."""

import pytest
import torch

from agentprm_core import worlds

torch.set_num_threads(1)


@pytest.fixture
def toy_engine(monkeypatch):
    worlds.world_spec.cache_clear()
    monkeypatch.setitem(worlds._OURS, "toy", "tests.model.toy:TOY")
    yield "toy"
    worlds.world_spec.cache_clear()
