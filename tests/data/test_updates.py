"""The stage's side of an update: which policy it is kept near, what is visited beside the rollouts."""

import shutil
from types import SimpleNamespace

import pytest
import torch

from agentprm_core.datasets import episodes_to_table, write_table
from agentprm_core.policy.models import load_policy
from agentprm_core.types import Episode, Turn
from tasks import layout, updates
from tasks.updates import replayed


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


@pytest.mark.parametrize(("share", "rollouts", "visited"), [(0.0, 8, 0), (0.5, 8, 8), (0.2, 8, 2), (0.9, 8, 10)])
def test_so_many_demonstrations_are_visited_beside_the_rollouts(tmp_path, monkeypatch, share, rollouts, visited):
    """As many as make ``policy.replay`` of all, or all there are."""
    monkeypatch.chdir(tmp_path)
    turn = Turn("a room", "look", ("look",), True, "s")
    demos = [Episode(f"game/{n}", 0, n, (turn,), True) for n in range(10)]
    write_table(episodes_to_table(demos, iteration=0, method="expert", policy=""), layout.DEMOS)
    section = SimpleNamespace(replay=share)
    stage = SimpleNamespace(seed=1, params=SimpleNamespace(policy=section), read=lambda *paths: None)
    found = [demo.game_id for demo in replayed(stage, rollouts)]
    assert len(found) == len(set(found)) == visited
