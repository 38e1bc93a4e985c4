"""Whole episodes that a PRM chooses among: those of a small N are the first of a large one. A text is scored once."""

from dataclasses import replace

import pytest

from agentprm_core.prm.score import score_episodes
from agentprm_core.search import playing
from agentprm_core.search.decoding_config import decoding
from agentprm_core.search.playing import Search, best_of_each_game, judge, play_games, play_trajectories
from agentprm_core.types import Episode
from tests.model import toy
from tests.model.portions import GAMES, SETTINGS
from tests.model.test_search import prm_of

pytestmark = pytest.mark.usefixtures("toy_engine")


def of(n: int, kind: str = "", prior: float = 0.0) -> Search:
    return Search(decoding(f"best_trajectory_of_{n}{kind}"), SETTINGS, 1.0, prior)


def said(episodes: list[Episode]) -> dict:
    return {(episode.game_id, episode.index): episode.turns for episode in episodes}


@pytest.fixture(scope="module")
def prm():
    return prm_of(0.0)


def test_the_first_of_many_are_those_of_few(prm):
    few, many = (play_trajectories(toy.policy(), GAMES, of(n), seed=1) for n in (2, 6))
    first = [episode for episode in many if episode.index < 2]
    assert said(first) == said(few)
    chosen = best_of_each_game(first, judge(many, prm), of(2))
    assert said(chosen) == said(play_games(toy.policy(), prm, GAMES, of(2), seed=1))


def test_equal_texts_are_scored_once_and_as_each_alone(prm, monkeypatch):
    played = play_trajectories(toy.policy(), GAMES, of(6), seed=1)
    played += [replace(episode, index=episode.index + 6) for episode in played]
    asked = []
    monkeypatch.setattr(playing, "score_episodes", lambda *args: asked.append(args[2]) or score_episodes(*args))
    found = judge(played, prm)
    (once,) = asked
    assert len({episode.turns for episode in once}) == len(once) < len(played) == len(found)
    for episode in played:
        (alone,) = score_episodes(prm.model, prm.renderer, [episode], 64)
        judged = found[episode.game_id, episode.index]
        assert (judged.last, judged.mean) == pytest.approx((alone[-1], alone.mean()), abs=1e-6)
        assert judged.read == len(prm.renderer.episode(episode.turns).input_ids)


@pytest.mark.parametrize("prior", [0.0, 0.3])
def test_a_path_is_worth_its_mean_score_and_what_it_was_likely(prm, prior):
    """The slow obvious version: every episode scored alone."""
    played = play_trajectories(toy.policy(), GAMES, of(6), seed=1)
    worth = {}
    for episode in played:
        (alone,) = score_episodes(prm.model, prm.renderer, [episode], 64)
        worth[episode.game_id, episode.index] = alone.mean() + prior * sum(episode.extra["log_probs"])
    chosen = play_games(toy.policy(), prm, GAMES, of(6, "_path", prior), seed=1)
    assert [episode.game_id for episode in chosen] == sorted(game.id for game in GAMES)
    for episode in chosen:
        of_game = {index: value for (game, index), value in worth.items() if game == episode.game_id}
        assert worth[episode.game_id, episode.index] == pytest.approx(max(of_game.values()), abs=1e-5)
    last = play_games(toy.policy(), prm, GAMES, of(6, "", prior), seed=1)
    assert said(last) != said(chosen)


def test_without_a_prm_the_likeliest_is_chosen_at_the_cost_of_all():
    played = play_trajectories(toy.policy(), GAMES, of(6), seed=1)
    chosen = play_games(toy.policy(), None, GAMES, of(6, "_by_untrained_likelihood"), seed=1)
    assert [episode.game_id for episode in chosen] == sorted(game.id for game in GAMES)
    for episode in chosen:
        of_game = [other for other in played if other.game_id == episode.game_id]
        assert max(of_game, key=lambda other: sum(other.extra["log_probs"])).turns == episode.turns
        assert episode.extra["world_steps"] == sum(other.length for other in of_game)
        assert episode.extra["cost"].prm_read == 0
        assert episode.extra["cost"].generated == pytest.approx(sum(other.extra["cost"].generated for other in of_game))
    with pytest.raises(ValueError, match="best_trajectory needs a PRM to choose"):
        play_games(toy.policy(), None, GAMES, of(6), seed=1)
