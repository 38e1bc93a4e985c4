"""The stage ``search`` and the update that imitates it: what is played, kept over a kill, and learnt from."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from agentprm_core.datasets import episodes_from_table, episodes_to_table, games_from_table, read_table, write_table
from agentprm_core.policy.models import load_checkpoint
from agentprm_core.types import EPISODES, GAMES, Episode, Turn
from tasks import search, updates
from tasks.frame import layout
from tasks.frame.params import Beam


class Killed(Exception):
    pass


@pytest.fixture
def stage(tmp_path):
    """Everything that the playing of a search asks for; its figures land in ``reported``."""
    params = SimpleNamespace(
        seed=1,
        compute=SimpleNamespace(device="cpu", threads=1, processes=1, sharding="none", cache_mb=64),
        env=SimpleNamespace(world="alfworld", max_turns=4),
        model=SimpleNamespace(context=512, max_action_tokens=8),
        rollout=SimpleNamespace(constrained=True, slots=4),
        search=SimpleNamespace(games=2, beam=Beam(width=1, samples=3), temperature=1.0, prior=0.1),
        policy=SimpleNamespace(method="expert_iteration"),
    )
    made = SimpleNamespace(params=params, iteration=1, prev=0, seed=1001, scratch=tmp_path / "scratch", name="search@1")
    made.clock, made.reported = SimpleNamespace(lap=lambda name: nullcontext()), []
    made.read, made.report = lambda *paths: None, made.reported.append
    return made


@pytest.fixture
def searched(stage, checkpoints, monkeypatch):
    """``searched()`` plays two games; ``searched.played`` are the games of each portion that was."""
    policy, prm = load_checkpoint(checkpoints / "policy"), load_checkpoint(checkpoints / "prm", kind="prm")
    games = games_from_table(read_table(checkpoints / "unseen.parquet", GAMES))
    playing = search.play_games

    def noted(policy, prm, games, way, *arguments):
        if len(made.played) == made.dies_at:
            raise Killed
        made.played.append([game.id for game in games])
        return playing(policy, prm, games, way, *arguments)

    def made():
        return search.search(stage, policy, prm, games)

    made.played, made.dies_at, made.games, made.policy = [], None, games, policy
    monkeypatch.setattr(search, "play_games", noted)
    return made


def test_every_game_is_searched_once(searched):
    table = searched()
    episodes = list(episodes_from_table(table))
    assert [episode.game_id for episode in episodes] == sorted(game.id for game in searched.games)
    assert set(table["method"].to_pylist()) == {"beam_1x3"}
    assert set(table["policy"].to_pylist()) == {searched.policy.digest}
    assert all(1 <= episode.length <= 4 for episode in episodes)


def test_a_killed_search_plays_what_is_missing(stage, searched, monkeypatch):
    whole = searched()
    assert len(searched.played) == 2  # fewer games than portions
    searched.played.clear()
    assert searched() == whole and searched.played == []
    stage.params.search.prior = 0.2
    searched.dies_at = 1
    with pytest.raises(Killed):
        searched()
    searched.dies_at = None
    searched.played.clear()
    searched()
    assert searched.played == [[searched.games[1].id]]


def test_a_method_that_imitates_no_search_plays_none(stage, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(search, "use", lambda compute: None)
    stage.params.policy.method = "online_dpo"
    search.work(stage)
    assert read_table(layout.searched(1), EPISODES).num_rows == 0
    assert stage.reported == [{"games": 0}]
    assert "policy.method online_dpo imitates no search: nothing is played" in capsys.readouterr().out


def test_expert_iteration_imitates_what_the_search_won(stage, tmp_path, monkeypatch):
    """Not the rollouts, and no game that was lost."""
    monkeypatch.chdir(tmp_path)
    turn = Turn("a room", "look", ("look",), True, "s")
    episodes = [Episode(f"game/{n}", 0, n, (turn,), won=n != 1) for n in range(3)]
    write_table(episodes_to_table(episodes, iteration=1, method="beam_1x3", policy=""), layout.searched(1))
    stage.params.policy = SimpleNamespace(steps=5, replay=0.0, imitates="won")
    stage.params.sft = SimpleNamespace(observation_weight=0.5)
    trainer = {"learning_rate": 0.1, "batch_tokens": 64, "seed": 1}
    monkeypatch.setattr(updates, "training_settings", lambda *_: trainer)
    monkeypatch.setattr(updates, "train_sft", lambda kept, *_: (list(kept), {}))
    kept, figures, pairs = updates.expert_iteration(stage, SimpleNamespace(renderer=None, model=None))
    assert [episode.game_id for episode in kept] == ["game/0", "game/2"]
    assert (figures["episodes"], figures["imitated"], pairs.num_rows) == (3, 2, 0)
