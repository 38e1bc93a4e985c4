"""Branches of the rollouts: kept in slices, which change nothing."""

from dataclasses import replace
from itertools import chain
from types import SimpleNamespace

import pytest

from agentprm_core import plays
from agentprm_core.datasets import write_table
from agentprm_core.plays import Branch, Plays
from agentprm_core.rollout import play, starts
from agentprm_core.search.playing import PlaySettings
from agentprm_core.shards.base import HERE
from agentprm_core.types import Episode, Turn
from tests.model import toy

GAMES = {game.id: game for game in (toy.game(n) for n in range(6))}
BRANCH = Branch(train_states=6, random_states=4, validation_states=3, continuations=4, temperature=1.5)


class Killed(Exception):
    pass


def of(world: str, slots: int) -> Plays:
    settings = PlaySettings(world, 6, 512, 8, constrained=True, slots=slots, cache_mb=2048)
    return Plays(3, 1.0, None, BRANCH, settings, seed=1001)


@pytest.fixture
def branches(toy_engine, monkeypatch):
    """``branches(folder)`` plays them; ``branches.played`` are the states of each slice that was, to be cleared."""
    sampler = of(toy_engine, 4).settings.sampler(toy.policy(), 1.0)
    episodes = sorted(
        play(sampler, starts(GAMES.values(), 3, seed=1), world_name=toy_engine, max_turns=6),
        key=lambda episode: (episode.game_id, episode.index),
    )
    playing = plays.play_branches

    def noted(sampler, games, points, *arguments, **how):
        if len(made.played) == made.dies_at:
            raise Killed
        made.played.append([point.name for point in points])
        return playing(sampler, games, points, *arguments, **how)

    def made(folder, slots=2, shards=HERE):
        sides = toy.sides(episodes, GAMES)
        return plays.branches(of(toy_engine, slots), toy.policy(), *sides, GAMES, scratch=folder, shards=shards)

    made.played, made.dies_at = [], None
    monkeypatch.setattr(plays, "play_branches", noted)
    return made


def test_slices_give_the_bytes_of_one_go(branches, tmp_path, monkeypatch):
    write_table(branches(tmp_path / "slices"), tmp_path / "slices.parquet")
    assert len(branches.played) > 2
    in_slices = list(chain.from_iterable(branches.played))
    several, strays = in_slices[:-4], in_slices[-4:]
    assert several == sorted(several) and strays == sorted(strays)
    assert len(set(in_slices)) == len(in_slices)
    branches.played.clear()
    monkeypatch.setattr(plays, "_PORTIONS", 1)
    write_table(branches(tmp_path / "one"), tmp_path / "one.parquet")
    assert branches.played == [several, strays]
    assert (tmp_path / "slices.parquet").read_bytes() == (tmp_path / "one.parquet").read_bytes()


def crew(players: int) -> SimpleNamespace:
    """As so many players would get the portions, all of them played here."""
    return SimpleNamespace(players=players, play=HERE.play)


def test_many_players_have_a_slice_each_and_the_same_bytes(branches, tmp_path):
    write_table(branches(tmp_path / "here", slots=4), tmp_path / "here.parquet")
    few = len(branches.played)
    branches.played.clear()
    write_table(branches(tmp_path / "crew", slots=4, shards=crew(9)), tmp_path / "crew.parquet")
    assert len(branches.played) > few
    assert (tmp_path / "here.parquet").read_bytes() == (tmp_path / "crew.parquet").read_bytes()


@pytest.mark.parametrize(("slots", "players", "portions"), [(2, 1, 6), (2, 9, 9), (100, 1, 1), (100, 4, 4)])
def test_rollouts_are_cut_so_that_every_player_has_a_portion(toy_engine, tmp_path, slots, players, portions):
    """18 episodes. One player has full slots, and at most eight portions."""
    how = {"demos": {}, "iteration": 1}
    play_all = (of(toy_engine, slots), toy.policy(), list(GAMES.values()))
    cut = plays.rollouts(*play_all, **how, scratch=tmp_path / "cut", shards=crew(players))
    assert len(list((tmp_path / "cut").iterdir())) == portions
    assert cut.equals(plays.rollouts(*play_all, **how, scratch=tmp_path / "here"))


def test_explorers_do_the_same_however_the_rollouts_are_cut(toy_engine, tmp_path, monkeypatch):
    """An episode follows from the earlier ones of its own game, also where games have states of the same key."""
    monkeypatch.setattr(toy.ToyWorld, "state_key", lambda world: str(world.here))
    tables = []
    for slots, players, portions in ((64, 1, 1), (10, 1, 3), (64, 5, 5), (64, 12, 5), (10, 12, 5)):
        explores = replace(of(toy_engine, slots), episodes_per_game=6, explore=plays.Bonus(2.0))
        how = {"iteration": 1, "scratch": tmp_path / f"{slots}-{players}", "shards": crew(players)}
        tables.append(plays.rollouts(explores, toy.policy(), list(GAMES.values())[:5], {}, **how))
        assert len(list(how["scratch"].iterdir())) == portions
    assert all(table.equals(tables[0]) for table in tables[1:])


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


@pytest.mark.parametrize(
    ("actions", "max_turns", "most"), [(50, 30, 20), (12, 30, 11), (21, 30, 20), (1, 30, 0), (50, 2, 1), (50, 1, 0)]
)
def test_a_reset_leaves_a_third_of_the_actions_to_decide(actions, max_turns, most):
    """However long the demonstration is; of a short one all but the last action may be replayed, as ever."""
    assert plays.most_replayed(actions, max_turns) == most
    demo = Episode("game", 0, 0, tuple(Turn("here", f"go {t}", (), True, "s") for t in range(actions)), True)
    game = replace(toy.game(0), id="game")
    settings = PlaySettings("tests.model.toy:TOY", max_turns, 512, 8, constrained=True, slots=2, cache_mb=64)
    resets = Plays(200, 1.0, plays.Resets(1.0), BRANCH, settings, seed=1)
    lengths = {len(start.actions) for start in plays._starts(resets, [game], {"game": demo})}
    assert lengths == set(range(most + 1))


def test_a_reset_goes_by_what_the_worlds_of_a_mixture_allow():
    """WebShop allows 6 actions where the campaign has 30: a third of the 6 is left."""
    demo = Episode("game", 0, 0, tuple(Turn("here", f"click {t}", (), True, "s") for t in range(6)), True)
    game = replace(toy.game(0), id="game", world="webshop")
    settings = PlaySettings("all_worlds", 30, 512, 8, constrained=True, slots=2, cache_mb=64)
    begun = plays._starts(Plays(200, 1.0, plays.Resets(1.0), BRANCH, settings, seed=1), [game], {"game": demo})
    assert {len(start.actions) for start in begun} == set(range(5))


def test_a_slice_fills_every_slot_several_times_and_no_states_are_one_slice():
    point = plays.Point(None, 0)
    several = [(replace(point, turn=n), ("a", "b", "c")) for n in range(40)]
    slices = list(plays._slices(several, continuations=4, seats=16))  # 480 plays
    assert list(chain.from_iterable(slices)) == several
    assert [len(part) for part in slices] == [13, 13, 14]
    assert len(list(plays._slices(several, continuations=400, seats=1))) == plays._PORTIONS
    assert list(plays._slices([], continuations=4, seats=16)) == [[]]


def test_commands_that_left_the_world_as_it_was():
    def episode(keys: str, start: int = 0) -> Episode:
        return Episode("g", 0, 1, tuple(Turn("see", "do", ("do",), True, key) for key in keys), won=False, start=start)

    assert plays.unchanged([episode("aabc"), episode("dd")]) == 2 / 4
    assert plays.unchanged([episode("aabc", start=1)]) == 0  # what was replayed is nobody's command
    assert plays.unchanged([episode("a")]) == 0
