"""Rollouts and evaluations of a campaign whose policy is behind servers: what is played there, and what is kept."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from agentprm_core import plays
from agentprm_core.errors import DataError
from agentprm_core.evaluate import OUTCOMES
from agentprm_core.plays import Plays, Steered
from agentprm_core.policy.models import load_checkpoint
from agentprm_core.policy.requests import Patience
from agentprm_core.policy.server import Endpoint, Servers, served_name
from agentprm_core.prm.model import new_prm
from agentprm_core.rollout import play, starts
from agentprm_core.search.cells import Cell, measurer
from agentprm_core.search.decoding_config import decoding
from agentprm_core.search.playing import PlaySettings, Search, search_digest
from agentprm_core.types import EPISODES, SERVED
from agentprm_core.worlds import world_spec
from tasks.frame.servers import SERVERS, servers
from tasks.frame.stage import StageError
from tests.model import test_server, toy
from tests.model.test_chat_served import made, reference
from tests.model.test_plays import BRANCH
from tests.model.test_server import GAMES, serving

BABYAI = world_spec("babyai")


QUICK = Patience(retries=2, backoff_s=0.01)
"""Servers that are gone are given up at once."""


@pytest.fixture(scope="module")
def chat(tmp_path_factory):
    """The small chat model, hardly trained."""
    return load_checkpoint(made(tmp_path_factory.mktemp("chat"), 10), prompt=BABYAI.prompt)


def at(*there) -> Servers:
    return Servers(tuple(f"http://127.0.0.1:{server.server_port}/v1" for server in there), patience=QUICK)


def toys(where: Servers | None, temperature: float = 1.0) -> Plays:
    settings = PlaySettings("toy", 4, 512, 8, constrained=False, slots=4, cache_mb=2048, servers=where)
    return Plays(2, temperature, None, BRANCH, settings, seed=3)


def rolled(how: Plays, policy, games, folder):
    return plays.rollouts(how, policy, games, {}, iteration=1, scratch=folder)


def test_rollouts_of_a_chat_model_are_those_of_here_with_log_probabilities(chat, tmp_path, monkeypatch):
    monkeypatch.setattr(test_server, "complete", lambda body, _: reference(body, chat))
    settings = PlaySettings("babyai", 2, 2048, 24, constrained=False, slots=2, cache_mb=512)
    here = Plays(1, 0.0, None, BRANCH, settings, seed=3)
    games = BABYAI.generate(3, 5, "unseen")
    with serving() as one, serving() as two:
        there = replace(here, settings=replace(settings, servers=at(one, two)))
        table = rolled(there, chat, games, tmp_path / "there")
        assert one.asked and two.asked
        assert {body["model"] for _, body, _ in one.asked + two.asked} == {served_name(chat.digest)}
        assert {path for path, _, _ in one.asked} == {"/v1/chat/completions"}
    assert table.schema == SERVED
    assert table.select(EPISODES.names) == rolled(here, chat, games, tmp_path / "here")
    sampled = sorted(play(settings.sampler(chat, 0.0), starts(games, 1, 3), world_name="babyai", max_turns=2),
                     key=lambda episode: episode.game_id)  # fmt: skip
    expected = [one for episode in sampled for one in episode.extra["log_probs"]]
    assert table["log_prob"].to_pylist() == pytest.approx(expected, abs=1e-3)


def test_a_dead_servers_episodes_are_played_at_another_and_none_twice(toy_engine, tmp_path):
    with serving() as alone:
        expected = rolled(toys(at(alone)), toy.policy(), GAMES, tmp_path / "alone")
    with serving() as one, serving(lambda number, body: 200 if number <= 5 else 503) as two:
        table = rolled(toys(at(one, two)), toy.policy(), GAMES, tmp_path / "two")
    assert table == expected
    ended = table.filter(table["done"]).select(["game_id", "episode"]).to_pylist()
    assert [(row["game_id"], row["episode"]) for row in ended] == [(game.id, i) for game in GAMES for i in (0, 1)]


def test_what_was_played_is_kept_wherever_the_servers_are(toy_engine, tmp_path):
    with serving() as one:
        table = rolled(toys(at(one)), toy.policy(), GAMES, tmp_path)
    nobody = Servers(("http://127.0.0.1:9/v1",), patience=QUICK)
    assert rolled(toys(nobody), toy.policy(), GAMES, tmp_path) == table
    digests = {
        search_digest(toy.policy(), None, GAMES, Search(decoding("greedy"), toys(where).settings, 1.0), 1)
        for where in (nobody, Servers(("http://127.0.0.1:10/v1",), api_key="secret"), None)
    }
    assert len(digests) == 2, "that servers play decides, where they are does not"


def test_a_server_without_this_policy_ends_it_in_one_line(toy_engine, tmp_path):
    with serving(lambda number, body: 404) as other, pytest.raises(DataError) as error:
        rolled(toys(at(other)), toy.policy(), GAMES, tmp_path)
    assert "did not answer in 1 tries; last: HTTP 404" in str(error.value)
    assert f"; request: model '{served_name('toy')}'" in str(error.value) and "\n" not in str(error.value)


def test_an_evaluation_plays_there_and_searches_here(toy_engine, monkeypatch):
    policy = toy.policy()
    prm = replace(policy, model=new_prm(policy.model))
    with serving() as server:
        settings = toys(at(server)).settings
        measured = measurer(policy, prm, None, 1, {"iteration": 0, "method": "m"})
        for name, asked in (("greedy", True), ("sample", True), ("best_of_2", False)):
            server.asked.clear()
            outcomes = measured(Cell("unseen", GAMES, Search(decoding(name), settings, 1.0)))
            assert outcomes.schema == OUTCOMES and outcomes.num_rows == len(GAMES)
            assert bool(server.asked) == asked, name


def test_steered_episodes_are_asked_for_with_the_steering_prompt(chat, monkeypatch):
    monkeypatch.setattr(test_server, "complete", lambda body, _: reference(body, chat))
    settings = PlaySettings("babyai", 1, 2048, 8, constrained=False, slots=2, cache_mb=512)
    (game,) = BABYAI.generate(1, 5, "unseen")
    with serving() as server:
        how = Plays(2, 1.0, Steered(0.5), BRANCH, replace(settings, servers=at(server)), seed=3)
        assert len(list(plays.played_by(how, chat, starts([game], 2, 3)))) == 2
        steered = ["think of a strategy" in body["messages"][0]["content"] for _, body, _ in server.asked]
    assert sorted(steered) == [False, True]


def test_the_environment_names_servers(monkeypatch):
    params = SimpleNamespace(model=SimpleNamespace(constrained="served"))
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setenv(SERVERS, "http://a:8000/v1, https://b/v1")
    found = servers(params)
    assert found is not None and found.urls == ("http://a:8000/v1", "https://b/v1")
    assert found.endpoint(toy.policy()) == Endpoint(
        "http://a:8000/v1", "policy-toy", "text", api_key="secret", log_probs=True, also=("https://b/v1",)
    )
    assert "secret" not in repr(found)
    assert servers(SimpleNamespace(model=SimpleNamespace(constrained=False))) is None
    for value, said in (
        ("", r"model\.constrained is served: AGENTPRM_SERVERS in the environment names no server: http://HOST:8000/v1"),
        ("localhost:8000", r"AGENTPRM_SERVERS in the environment: 'localhost:8000' is not allowed: http://HOST"),
        ("http://ann:hunter22@h/v1", r"an address with a password is not allowed.*a key is in OPENAI_API_KEY"),
    ):
        monkeypatch.setenv(SERVERS, value)
        with pytest.raises(StageError, match=said) as error:
            servers(params)
        assert "hunter22" not in str(error.value)
