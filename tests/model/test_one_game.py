"""A game that is played turn by turn is the game that is played at once; one can look, judge, go back and change."""

import math
from dataclasses import replace

import pytest

from agentprm_core.errors import DataError
from agentprm_core.one_game import LOST, OUT_OF_CONTEXT, OUT_OF_TURNS, WON, Minds, OneGame
from agentprm_core.opinions import opinions
from agentprm_core.policy.requests import ServerError
from agentprm_core.rollout import starts
from agentprm_core.search.beam import BeamSearch
from agentprm_core.search.decoding_config import decoding
from agentprm_core.search.playing import PlaySettings, Search, play_games
from agentprm_core.search.scorer import PrmScorer
from tests.model import toy
from tests.model.test_search import prm_of, sampler
from tests.model.test_server import PATIENCE, Endpoint, serving

GAMES = [toy.game(n) for n in range(6)]
WAYS = ("greedy", "sample", "best_of_8", "beam_2x3")


@pytest.fixture(scope="module")
def prm():
    return prm_of(0.3)


@pytest.fixture
def minds(toy_engine, prm):
    settings = PlaySettings(
        world="toy", max_turns=6, context=512, max_action_tokens=8, constrained=True, slots=4, cache_mb=64
    )
    return Minds(toy.policy(), prm, Search(decoding("greedy"), settings, 2.0, 0.1))


def to_the_end(game):
    while (outlook := game.look()) is not None:
        game.do(outlook.choice, outlook.reason)
    return game.episode()


@pytest.mark.parametrize("way", WAYS)
def test_left_to_itself_it_plays_what_is_played_at_once(minds, way):
    search = replace(minds.search, way=decoding(way))
    at_once = {e.game_id: e for e in play_games(minds.policy, minds.prm, GAMES, search, 5)}
    for game in GAMES:
        assert to_the_end(OneGame(minds, game, decoding(way), seed=5)) == at_once[game.id]


def test_an_outlook_is_what_models_say_of_the_state(minds):
    game = OneGame(minds, GAMES[0], decoding("best_of_8"))
    for _ in range(3):
        outlook = game.look()
        game.do(outlook.choice)
    last = game.steps[-1].outlook
    said = opinions(minds.policy, [minds.prm], game.episode(), constrained=True)[-1]
    assert {o.action: pytest.approx((o.chance, o.q), abs=1e-5) for o in last.options} == {
        c.action: (c.probability, *c.scores) for c in said
    }
    assert [o.chance for o in last.options] == sorted((o.chance for o in last.options), reverse=True)
    assert sum(o.samples for o in last.options) == 8 and last.chosen.samples > 0
    assert sum(o.chance for o in last.options) == pytest.approx(1, abs=1e-5)


def test_going_back_leads_to_the_same_state_and_the_same_thoughts(minds):
    game = OneGame(minds, GAMES[1], decoding("greedy"))
    to_the_end(game)
    turns, outlook, ended = game.turns, game.steps[2].outlook, game.ended
    game.back(2)
    assert (len(game.steps), game.ended, game.seen.text) == (2, "", turns[2].observation)
    assert game.look() == outlook
    assert to_the_end(game).turns == turns and game.ended == ended


def test_going_back_without_copies_replays(minds, monkeypatch):
    from agentprm_core import worlds

    game = OneGame(minds, GAMES[1], decoding("greedy"))
    to_the_end(game)
    other = OneGame(minds, GAMES[1], decoding("greedy"))
    other._spec = replace(worlds.world_spec("toy"), clones=False)
    to_the_end(other)
    for played in (game, other):
        played.back(3)
        played.do("inventory", by="you")
    assert other.turns == game.turns and other._world.state_key() == game._world.state_key()


def test_one_takes_over_and_the_policy_goes_on_from_there(minds):
    game = OneGame(minds, GAMES[2], decoding("greedy"))
    game.do("look", by="you")
    game.do("dance", by="you")
    assert [(step.by, step.turn.valid) for step in game.steps] == [("you", True), ("you", False)]
    replayed = OneGame(minds, GAMES[2], decoding("greedy"))
    replayed.look()  # it has a seat before, the other one only now
    replayed.do("look", by="you")
    replayed.do("dance", by="you")
    assert game.look() == replayed.look()


def test_any_command_is_judged(minds):
    game = OneGame(minds, GAMES[0], decoding("greedy"))
    listed = {option.action: option for option in game.look().options}
    assert game.judge("look") == listed["look"]
    odd = game.judge("take mug 1")
    assert not odd.admissible and odd.chance == 0 and 0 < odd.q < 1


def test_the_way_can_be_changed_at_any_turn(minds):
    game = OneGame(minds, GAMES[3], decoding("greedy"))
    for way in ("beam_2x3", "greedy", "best_of_8"):
        game.way = decoding(way)
        outlook = game.look()
        assert outlook.choice in game.seen.admissible
        assert bool(outlook.plan) == (way == "beam_2x3")
        game.do(outlook.choice)
    with pytest.raises(DataError, match="lookahead_of_2x1: not a way to play turn by turn"):
        game.way = decoding("lookahead_of_2x1")
    assert game.way.name == "best_of_8"


def test_a_plan_that_one_leaves_is_made_anew(minds):
    game = OneGame(minds, GAMES[3], decoding("beam_2x3"))
    first = game.look()
    game.do(first.choice)
    assert game.look().choice == first.plan[0]
    game.do(next(command for command in game.seen.admissible if command != first.plan[0]), by="you")
    outlook = game.look()
    assert outlook is None or len(game.steps) + 1 + len(outlook.plan) <= game.max_turns


@pytest.mark.parametrize("given", [1, 3])
def test_a_beam_begins_where_actions_lead(minds, prm, given):
    whole = OneGame(minds, GAMES[4], decoding("greedy"))
    to_the_end(whole)
    (start,) = starts([GAMES[4]], 1, 1)
    begun = replace(start, actions=tuple(turn.action for turn in whole.turns[:given]))
    asked, scorer = sampler(), PrmScorer(prm, slots=8, context=512, max_action_tokens=8)
    (found,) = BeamSearch(asked, scorer, width=2, samples=4).search([begun], world_name="toy", max_turns=6)
    assert found.turns[:given] == whole.turns[:given] and given < found.length <= 6
    assert len(asked._seats) == 0 and len(scorer._open) == 0


def test_how_it_ends(minds):
    assert {to_the_end(game) and game.ended for game in (OneGame(minds, g, decoding("sample")) for g in GAMES)} <= {
        WON, LOST, OUT_OF_TURNS,
    }  # fmt: skip
    short = replace(minds, search=replace(minds.search, settings=replace(minds.search.settings, context=40)))
    game = OneGame(short, GAMES[0], decoding("greedy"))
    to_the_end(game)
    assert game.ended == OUT_OF_CONTEXT and game.episode().truncated
    with pytest.raises(ValueError, match="toy/000 has ended: out of context"):
        game.do("look")


@pytest.mark.parametrize(
    ("way", "changes", "message"),
    [
        ("best_of_8", {"prm": None}, "best_of_8: a PRM must choose: give --prm"),
        ("beam_2x2", {"policy": Endpoint("http://x", "m", "chat")}, "a policy behind a server plays greedy or sample"),
        ("best_trajectory_of_4", {}, "best_trajectory_of_4: not a way to play turn by turn"),
    ],
)
def test_what_cannot_be_played_is_refused(minds, way, changes, message):
    with pytest.raises(DataError, match=message):
        OneGame(replace(minds, **changes), GAMES[0], decoding(way))


def test_a_server_that_ends_in_the_middle_is_named_and_can_be_asked_again(minds):
    dead = [False]
    with serving(lambda number, body: 503 if dead[0] else 200) as server:
        there = Endpoint(f"http://127.0.0.1:{server.server_port}/v1", "toy", "text", patience=PATIENCE)
        game = OneGame(replace(minds, policy=there), GAMES[0], decoding("greedy"))
        outlook = game.look()
        assert all(math.isnan(option.chance) and 0 < option.q < 1 for option in outlook.options)
        game.do(outlook.choice)
        dead[0] = True
        with pytest.raises(ServerError, match="completions did not answer in 3 tries"):
            game.look()
        dead[0] = False
        assert game.look() is not None and len(game.steps) == 1
        game.close()
