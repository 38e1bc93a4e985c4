"""The stage's side of training: which policy an update is kept near, what it visits, and on how many processes."""

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import yaml

from agentprm_core.datasets import episodes_to_table, write_table
from agentprm_core.improve import rft
from agentprm_core.policy.models import load_checkpoint
from agentprm_core.types import Episode, Turn
from tasks import prm, updates
from tasks.frame import layout
from tasks.frame.params import PARAMS, validate
from tasks.frame.profile import load_profile, overridden
from tasks.updates import replayed

ROOT = Path(__file__).parents[2]
WON = Episode("game", 0, 0, (Turn("a room", "look", ("look",), True, "s"),), True)


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
        first = load_checkpoint(checkpoints / "policy").model
        assert all(torch.equal(a, b) for a, b in zip(found.parameters(), first.parameters(), strict=True))
    else:
        assert found is None


@pytest.mark.parametrize(("share", "rollouts", "visited"), [(0.0, 8, 0), (0.5, 8, 8), (0.2, 8, 2), (0.9, 8, 10)])
def test_so_many_demonstrations_are_visited_beside_the_rollouts(tmp_path, monkeypatch, share, rollouts, visited):
    """As many as make ``policy.replay`` of all, or all there are."""
    monkeypatch.chdir(tmp_path)
    demos = [replace(WON, game_id=f"game/{n}") for n in range(10)]
    write_table(episodes_to_table(demos, iteration=0, method="expert", policy=""), layout.DEMOS)
    section = SimpleNamespace(replay=share)
    stage = SimpleNamespace(seed=1, params=SimpleNamespace(policy=section), read=lambda *paths: None)
    found = [demo.game_id for demo in replayed(stage, rollouts)]
    assert len(found) == len(set(found)) == visited


def test_what_ends_as_demonstrations_do_is_imitated_whatever_its_outcome(checkpoints, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(checkpoints / "prm", layout.prm(1))
    demos = [replace(WON, game_id=f"demo/{n}") for n in range(20)]
    searched = [replace(WON, game_id=f"game/{n}", won=n == 3) for n in range(4)]
    searched[1] = replace(searched[1], turns=WON.turns * 30)  # ran out of actions, and scores as an expert's end
    write_table(episodes_to_table(demos, iteration=0, method="expert", policy=""), layout.DEMOS)
    write_table(episodes_to_table(searched, iteration=1, method="beam", policy=""), layout.searched(1))
    ends = iter([[0.2, 0.7, 0.1, 0.6], np.linspace(0.45, 0.83, 20)])  # one demonstration in twenty is below 0.47
    monkeypatch.setattr(rft, "score_episodes", lambda *_: [np.array([0.9, end]) for end in next(ends)])
    monkeypatch.setattr(updates, "train_sft", lambda kept, *_: (list(kept), {}))
    inverse = load_profile(
        "inverse", ROOT / "profiles", ["policy.method=expert_iteration", "policy.imitates=expert_like"]
    )
    raw = overridden(yaml.safe_load((ROOT / PARAMS).read_text()), inverse)
    stage = SimpleNamespace(
        name="policy@1", params=validate(raw, "params.yaml"), iteration=1, prev=0, seed=1, scratch=Path("scratch"),
        read=lambda *_: None,
    )  # fmt: skip
    kept, figures, _ = updates.expert_iteration(stage, SimpleNamespace(renderer=None, model=None))
    assert [episode.game_id for episode in kept] == ["game/1", "game/3"]
    assert (figures["episodes"], figures["imitated"]) == (4, 2)
    assert (figures["out_of_actions"], figures["out_of_actions_imitated"]) == (1, 1)
    assert "policy@1: 1 of the 1 episodes that ran out of actions are imitated" in capsys.readouterr().out


@pytest.mark.parametrize(("imitated", "said"), [(1, False), (2, True)])
def test_a_prm_that_does_not_know_an_end_is_spoken_of(imitated, said, capsys):
    """Where more than a tenth of what ran out of actions is imitated; replayed actions count, as where it is played."""
    short = [replace(WON, turns=WON.turns * 29)]
    long = [replace(WON, turns=WON.turns * 30, start=6)] * 10
    stage = SimpleNamespace(name="policy@2", params=SimpleNamespace(env=SimpleNamespace(max_turns=30)))
    found = updates.knows_an_end(stage, [*short, *long], [*short, *long[:imitated]])
    assert found == {"out_of_actions": 10, "out_of_actions_imitated": imitated}
    assert ("hardly knows how an expert ends" in capsys.readouterr().out) == said


@pytest.mark.parametrize(
    ("train", "trainer"),
    [
        (lambda stage: updates.rft(stage, SimpleNamespace(renderer=None, model=None)), (updates, "train_sft")),
        (lambda stage: updates.grpo(stage, SimpleNamespace()), (updates, "train_policy_gradient")),
        (lambda stage: prm._labelled(stage, SimpleNamespace(renderer=None)), (prm, "train_prm")),
        (lambda stage: prm._inverse(stage, SimpleNamespace(renderer=None)), (prm, "train_inverse")),
    ],
)
def test_training_is_shared_by_the_processes_asked_for(train, trainer, monkeypatch):
    class Asked(Exception):
        pass

    def asked(*arguments):
        raise Asked(next(a for a in arguments if hasattr(a, "processes")))

    each = {name: {"accumulation": 4, "optimizer": "adamw"} for name in ("sft", "prm", "policy")}
    each["policy"]["steps"] = 1
    several = {"compute": {"processes": 2, "sharding": "fsdp2"}, **each}
    raw = overridden(yaml.safe_load((ROOT / PARAMS).read_text()), several)
    stage = SimpleNamespace(
        params=validate(raw, "params.yaml"), iteration=1, prev=0, seed=1, scratch=Path("scratch"), read=lambda *_: None
    )
    monkeypatch.setattr(*trainer, asked)
    monkeypatch.setattr(updates, "rollouts", lambda _: [WON])
    monkeypatch.setattr(updates, "read_turns", lambda _: SimpleNamespace(starts_E=[0]))
    monkeypatch.setattr(updates, "grpo_advantages", lambda _: torch.zeros(1).numpy())
    monkeypatch.setattr(prm, "start", lambda *_: None)
    monkeypatch.setattr(prm, "labelled", lambda _: ([], []))
    monkeypatch.setattr(prm, "inverse_episodes", lambda _: ([], []))
    with pytest.raises(Asked) as settings:
        train(stage)
    settings = settings.value.args[0]
    assert (settings.processes, settings.accumulation, settings.sharding) == (2, 4, "fsdp2")
