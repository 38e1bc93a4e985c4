"""The stage's side of an update: which policy it is kept near."""

import shutil
from types import SimpleNamespace

import pytest
import torch

from agentprm_core.policy.models import load_policy
from tasks import layout, updates


@pytest.mark.parametrize(("name", "read"), [("previous", []), ("first", [layout.policy(0)])])
def test_the_anchor_of_a_later_iteration(checkpoints, tmp_path, monkeypatch, name, read):
    """π₀ lies where every iteration finds it, and is read where it is the anchor alone."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(checkpoints / "policy", layout.policy(0))
    known = []
    policy = SimpleNamespace(anchor=name)
    stage = SimpleNamespace(params=SimpleNamespace(policy=policy), iteration=3, prev=2, read=known.append)
    found = updates.anchor(stage)
    assert known == read
    if read:
        first = load_policy(checkpoints / "policy").model
        assert all(torch.equal(a, b) for a, b in zip(found.parameters(), first.parameters(), strict=True))
    else:
        assert found is None
