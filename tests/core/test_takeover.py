"""The expert takes over a policy's episodes: what is done again, what is imitated, and what the method keeps."""

from dataclasses import replace

import pytest

from agentprm_core.datasets import episodes_from_table
from agentprm_core.errors import DataError
from agentprm_core.improve.takeover import taken_over
from agentprm_core.methods import dagger
from agentprm_core.types import Episode, Turn
from agentprm_core.worlds import make_world, world_spec
from agentprm_core.worlds.demonstrations import demonstrate
from tests.core.given import PLAY, given, know, write_episodes, write_games
from tests.model import toy

CONFIG = dagger.Config(
    name="dagger", learning_rate=0.1, steps=5, batch_tokens=64, expert=None, knowledge=0.0, replay=0.0
)
WORLDS = ("alfworld", "textcraft", "webshop", "arithmetic")


def of(world: str, most: int = 30) -> dict:
    return {"world_name": world, "max_turns": most, "knowledge": 1.0}


def wandered(world: str, game, actions: int) -> Episode:
    """The first listed command, again and again."""
    engine, turns = make_world(world), []
    seen = engine.reset(game)
    for number in range(actions):
        command = seen.admissible[number % len(seen.admissible)] if seen.admissible else "nothing"
        turns.append(Turn(seen.text, command, seen.admissible, True, engine.state_key()))
        seen = engine.step(command)
        if seen.done:
            break
    return Episode(game.id, 0, 0, tuple(turns), False)


@pytest.mark.parametrize("world", WORLDS)
def test_an_expert_that_takes_over_from_itself_does_what_it_would_have_done(world):
    for seed, game in enumerate(world_spec(world).generate(6, 1, "train")):
        whole = demonstrate(make_world(world), game, seed=seed, **of(world))
        for k in range(1, whole.length):
            before = [turn.action for turn in whole.turns[:k]]
            found = demonstrate(make_world(world), game, seed=seed, before=before, **of(world))
            assert found == replace(whole, start=k)


def test_it_goes_on_from_where_somebody_else_got_to():
    """And wins nearly all households from there; without the turns for that it does not."""
    games = world_spec("alfworld").generate(24, 1, "train")
    by_id = {game.id: game for game in games}
    lost = [wandered("alfworld", game, 6) for game in games]
    found = taken_over(lost, by_id, seed=3, **of("alfworld", 50))
    assert sum(episode.won for episode in found) >= 22
    assert len({episode.start for episode in found}) > 3
    for episode, first in zip(found, lost, strict=True):
        assert episode.game_id == first.game_id and episode.start < first.length
        assert episode.turns[: episode.start] == first.turns[: episode.start]
    assert taken_over(lost, by_id, seed=3, **of("alfworld", 50)) == found
    few = taken_over(lost, by_id, seed=3, **of("alfworld", 7))
    assert max(episode.length for episode in few) == 7 and not all(episode.won for episode in few)


def test_every_rollout_so_far_is_taken_over_and_what_is_won_is_kept(tmp_path):
    games = world_spec("alfworld").generate(8, 1, "train")
    play = replace(PLAY, world="alfworld", max_turns=50)
    data = know(given(tmp_path, iteration=2, play=play), policy=toy.policy())
    write_games(data, games)
    for path, actions in zip(data.folders.rollouts, (3, 5), strict=True):
        write_episodes(path, [wandered("alfworld", game, actions) for game in games])
    found = dagger.collect(CONFIG, data)
    kept = list(episodes_from_table(found.table))
    assert found.figures["episodes"] == 16 and found.figures["chosen"] == len(kept) > 10
    assert all(episode.won and episode.start < episode.length for episode in kept)
    keys = [(episode.game_id, episode.index) for episode in kept]
    assert len(set(keys)) == len(keys) and {index for _, index in keys} == {0, 1}
    assert found.played.episodes == 16
    assert found.played.turns >= sum(episode.length - episode.start for episode in kept)


def test_nothing_won_and_an_expert_that_is_not_there_are_said(tmp_path):
    (game,) = world_spec("alfworld").generate(1, 1, "train")
    play = replace(PLAY, world="alfworld", max_turns=2)
    data = know(given(tmp_path, play=play), policy=toy.policy())
    write_games(data, [game])
    write_episodes(data.folders.rollouts[-1], [wandered("alfworld", game, 2)])
    with pytest.raises(DataError, match="the expert won none of the 1 rollouts that it took over"):
        dagger.collect(CONFIG, data)
    with pytest.raises(DataError, match="the world alfworld"):
        dagger.collect(replace(CONFIG, expert="plan"), data)
