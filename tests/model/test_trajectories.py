"""Whole episodes that a PRM chooses among: those of a small N are the first of a large one. A text is scored once."""

from dataclasses import replace

import pytest

from agentprm_core.prm.score import score_episodes
from agentprm_core.search import playing
from agentprm_core.search.decoding_config import decoding
from agentprm_core.search.playing import Search, best_of_each_game, judge_ends, play_games, play_trajectories
from agentprm_core.types import Episode
from tests.model import toy
from tests.model.portions import GAMES, SETTINGS
from tests.model.test_search import prm_of

pytestmark = pytest.mark.usefixtures("toy_engine")


def of(n: int) -> Search:
    return Search(decoding(f"best_trajectory_of_{n}"), SETTINGS, 1.0, 0.0)


def said(episodes: list[Episode]) -> dict:
    return {(episode.game_id, episode.index): episode.turns for episode in episodes}


@pytest.fixture(scope="module")
def prm():
    return prm_of(0.0)


def test_the_first_of_many_are_those_of_few(prm):
    few, many = (play_trajectories(toy.policy(), GAMES, of(n), seed=1) for n in (2, 6))
    first = [episode for episode in many if episode.index < 2]
    assert said(first) == said(few)
    chosen = best_of_each_game(first, judge_ends(many, prm))
    assert said(chosen) == said(play_games(toy.policy(), prm, GAMES, of(2), seed=1))


def test_equal_texts_are_scored_once_and_as_each_alone(prm, monkeypatch):
    played = play_trajectories(toy.policy(), GAMES, of(6), seed=1)
    played += [replace(episode, index=episode.index + 6) for episode in played]
    asked = []
    monkeypatch.setattr(playing, "score_episodes", lambda *args: asked.append(args[2]) or score_episodes(*args))
    ends = judge_ends(played, prm)
    (once,) = asked
    assert len({episode.turns for episode in once}) == len(once) < len(played) == len(ends)
    for episode in played:
        (alone,) = score_episodes(prm.model, prm.renderer, [episode], 64)
        end = ends[episode.game_id, episode.index]
        assert end.score == pytest.approx(float(alone[-1]), abs=1e-6)
        assert end.read == len(prm.renderer.episode(episode.turns).input_ids)
