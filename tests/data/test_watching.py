"""The stage's side of the reward-hacking monitor: the probe and auditor of params.yaml, and where the verdict goes."""

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

from agentprm_core.improve.online_dpo import DpoSettings, train_online_dpo
from agentprm_core.policy.models import Checkpoint
from agentprm_core.prm.model import new_prm
from agentprm_core.prm.rows import Labelled
from tasks import watching
from tests.model import text_world

SETTINGS = DpoSettings(learning_rate=5e-3, batch_tokens=600, seed=0, steps=4, beta=0.1, samples=4)


def labelled(episodes):
    return [Labelled(episode, np.full(episode.length, 0.9 if episode.won else 0.1)) for episode in episodes]


class Tracker:
    def __init__(self):
        self.tags, self.curves = {}, {}

    def tag(self, name, value):
        self.tags[name] = value

    def log_curve(self, name, curve):
        self.curves[name] = curve


@pytest.fixture
def stage(tmp_path, monkeypatch):
    sides = labelled(text_world.episodes(4)), labelled(text_world.episodes(6, 2, first_game=50))
    monkeypatch.setattr(watching, "labelled", lambda stage: sides)
    prm = {"optimizer": "adamw", "learning_rate": 0.01, "batch_tokens": 600, "accumulation": 1, "save_every": 5}
    params = SimpleNamespace(
        compute=SimpleNamespace(precision="float32", gradient_checkpointing=False),
        prm=SimpleNamespace(**prm, epochs=2, likelihood=0.3),
        policy=SimpleNamespace(monitor=SimpleNamespace(every=2, episodes=4, auditor=True, games=0, stop=False)),
    )
    more = {"scratch": tmp_path, "tracker": Tracker(), "tracking": nullcontext}
    return SimpleNamespace(params=params, name="policy@1", seed=3, **more)


def test_an_update_is_watched_judged_and_told(stage, tmp_path, capsys):
    renderer = text_world.renderer()
    policy = Checkpoint(text_world.small_model(renderer).eval(), renderer.tokenizer, renderer, "")
    prm = Checkpoint(new_prm(policy.model).eval(), renderer.tokenizer, renderer, "")
    callbacks = watching.watch(stage, policy, prm, SETTINGS)
    train_online_dpo(text_world.episodes(6), policy, prm, SETTINGS, tmp_path / "policy", callbacks)
    found = watching.judged(callbacks)["monitor"]
    assert [look["step"] for look in found["looks"]] == [0, 2, 4]
    assert found["looks"][0]["score"] == 0.5 != found["looks"][0]["audit"]
    assert len(callbacks[0].looks[0].score) == 4
    watching.tell(stage, found)
    assert stage.tracker.tags == {"reward_hacking": "none"}
    assert stage.tracker.curves["monitor"] == found["looks"]
    assert "suspected" not in capsys.readouterr().out
    watching.tell(stage, found | {"flag": 1, "signals": {"audit": 4, "unrealised": None, "repeated": None}})
    assert stage.tracker.tags == {"reward_hacking": "audit at step 4"}
    assert "policy@1: reward hacking suspected: audit at step 4" in capsys.readouterr().out


def test_nobody_looks_where_every_is_0(stage):
    stage.params.policy.monitor.every = 0
    assert watching.watch(stage, None, None, SETTINGS) == []
    assert watching.judged([]) == {}
