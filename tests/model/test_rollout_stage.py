"""Branches of the stage ``rollout``: kept in slices, which change nothing."""

from dataclasses import replace
from itertools import chain
from types import SimpleNamespace

import pytest

from agentprm_core.datasets import write_table
from agentprm_core.rollout import play, starts
from tasks import rollout
from tests.model import toy

GAMES = {game.id: game for game in (toy.game(n) for n in range(6))}


class Killed(Exception):
    pass


def stage(world_name: str, slots: int):
    states = {"train_states": 6, "random_states": 4, "validation_states": 3}
    branch = SimpleNamespace(**states, actions=3, continuations=4, temperature=1.5)
    params = SimpleNamespace(
        seed=1,
        compute=SimpleNamespace(cache_mb=2048),
        env=SimpleNamespace(world=world_name, max_turns=6),
        label=SimpleNamespace(validation_share=0.5),
        model=SimpleNamespace(context=512, max_action_tokens=8),
        rollout=SimpleNamespace(temperature=1.0, constrained=True, slots=slots, branch=branch),
    )
    return SimpleNamespace(params=params, seed=1001)


@pytest.fixture
def branches(toy_engine, monkeypatch):
    """``branches(folder)`` plays them; ``branches.played`` are the states of each slice that was, to be cleared."""
    sampler = rollout.new_sampler(stage(toy_engine, 4), toy.policy(), 1.0)
    episodes = sorted(
        play(sampler, starts(GAMES.values(), 3, seed=1), world_name=toy_engine, max_turns=6),
        key=lambda episode: (episode.game_id, episode.index),
    )
    playing = rollout.play_branches

    def noted(sampler, games, points, *arguments, **how):
        if len(made.played) == made.dies_at:
            raise Killed
        made.played.append([point.name for point in points])
        return playing(sampler, games, points, *arguments, **how)

    def made(folder, slots=2):
        return rollout._branches(stage(toy_engine, slots), toy.policy(), episodes, GAMES, folder)

    made.played, made.dies_at = [], None
    monkeypatch.setattr(rollout, "play_branches", noted)
    return made


def test_slices_give_the_bytes_of_one_go(branches, tmp_path, monkeypatch):
    write_table(branches(tmp_path / "slices"), tmp_path / "slices.parquet")
    assert len(branches.played) > 2
    in_slices = list(chain.from_iterable(branches.played))
    several, strays = in_slices[:-4], in_slices[-4:]
    assert several == sorted(several) and strays == sorted(strays)
    assert len(set(in_slices)) == len(in_slices)
    branches.played.clear()
    monkeypatch.setattr(rollout, "_PORTIONS", 1)
    write_table(branches(tmp_path / "one"), tmp_path / "one.parquet")
    assert branches.played == [several, strays]
    assert (tmp_path / "slices.parquet").read_bytes() == (tmp_path / "one.parquet").read_bytes()


def test_a_finished_slice_is_not_played_again(branches, tmp_path):
    whole = branches(tmp_path / "whole")
    slices = list(branches.played)
    branches.played.clear()
    branches.dies_at = 2
    with pytest.raises(Killed):
        branches(tmp_path / "killed")
    assert branches.played == slices[:2]
    branches.played.clear()
    branches.dies_at = None
    assert branches(tmp_path / "killed") == whole
    assert branches.played == slices[2:]


def test_a_slice_fills_every_slot_several_times_and_no_states_are_one_slice():
    point = rollout.Point(None, 0)
    several = [(replace(point, turn=n), ("a", "b", "c")) for n in range(40)]
    slices = list(rollout._slices(several, continuations=4, seats=16))  # 480 plays
    assert list(chain.from_iterable(slices)) == several
    assert [len(part) for part in slices] == [13, 13, 14]
    assert len(list(rollout._slices(several, continuations=400, seats=1))) == rollout._PORTIONS
    assert list(rollout._slices([], continuations=4, seats=16)) == [[]]
