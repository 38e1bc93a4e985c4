"""What watches an update for reward hacking: its probe, its second opinion, the games it plays, and the verdict."""

from dataclasses import replace

import numpy as np
import pytest

from agentprm_core.improve.monitor import verdict
from agentprm_core.improve.online_dpo import DpoSettings, train_online_dpo
from agentprm_core.methods import watching
from agentprm_core.methods.watching import Monitor
from agentprm_core.policy.models import Checkpoint
from agentprm_core.prm.model import new_prm
from agentprm_core.prm.rows import Labelled
from tests.core.given import given, know, write_games
from tests.model import text_world, toy

SETTINGS = DpoSettings(learning_rate=5e-3, batch_tokens=600, seed=0, steps=4, beta=0.1, samples=4)
MONITOR = Monitor(every=2, episodes=4, auditor=True, games=0, stop=False)


def labelled(episodes):
    return [Labelled(episode, np.full(episode.length, 0.9 if episode.won else 0.1)) for episode in episodes]


@pytest.fixture
def data(tmp_path, monkeypatch):
    sides = labelled(text_world.episodes(4)), labelled(text_world.episodes(20, 4, first_game=50))
    monkeypatch.setattr(watching, "labelled_sides", lambda given, **how: sides)
    renderer = text_world.renderer()
    policy = Checkpoint(text_world.small_model(renderer).eval(), renderer.tokenizer, renderer, "")
    prm = Checkpoint(new_prm(policy.model).eval(), renderer.tokenizer, renderer, "")
    return know(given(tmp_path), trainee=policy, prm=prm)


def test_an_update_is_watched_and_judged(data, tmp_path):
    callbacks = watching.watch(MONITOR, data, SETTINGS)
    train_online_dpo(text_world.episodes(6), data.trainee, data.prm, SETTINGS, tmp_path / "policy", callbacks)
    found = verdict(callbacks[0].looks)
    assert [look["step"] for look in found["looks"]] == [0, 2, 4]
    assert found["looks"][0]["score"] == 0.5 != found["looks"][0]["audit"]
    assert len(callbacks[0].looks[0].score) == 4
    assert found["looks"][0].keys() & {"believed", "returned"} == set()


def test_without_an_auditor_there_is_no_second_opinion(data, tmp_path):
    callbacks = watching.watch(replace(MONITOR, auditor=False), data, SETTINGS)
    train_online_dpo(text_world.episodes(6), data.trainee, data.prm, SETTINGS, tmp_path / "policy", callbacks)
    assert all("audit" not in look for look in verdict(callbacks[0].looks)["looks"])


def test_the_games_asked_for_are_played_the_same_way_each_time(tmp_path):
    games = [toy.game(n) for n in range(6)]
    data = know(given(tmp_path), trainee=toy.policy())
    write_games(data, games)
    how = watching._played(data, [game.id for game in games[2:4]])
    played = [sorted(how["play"](), key=lambda episode: episode.game_id) for _ in range(2)]
    assert [episode.game_id for episode in played[0]] == ["toy/002", "toy/003"]
    assert [episode.turns for episode in played[0]] == [episode.turns for episode in played[1]]
    assert watching._played(data, []) == {}
