"""The toy world as an engine of its own name, for tests that play; and one thread, since the models are tiny."""

import pytest
import torch

from agentprm_core import envs

torch.set_num_threads(1)


@pytest.fixture
def toy_engine(monkeypatch):
    monkeypatch.setitem(envs._ENGINES, "toy", ("tests.model.toy", "ToyWorld"))
    return "toy"
