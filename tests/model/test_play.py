"""``agentprm play`` without a terminal: a transcript, and one line for what cannot be played."""

import json
import re
import sys

import pytest

from agentprm_core import worlds
from agentprm_core.datasets import games_to_table, write_table
from agentprm_core.policy import shipped as shipping
from agentprm_core.policy.models import MANIFEST, load_checkpoint, save_checkpoint
from agentprm_core.policy.requests import Patience
from agentprm_core.policy.server import Endpoint
from agentprm_core.worlds.published import named_game
from tasks.commands import play
from tasks.commands.play_lines import bar, percent, score
from tests.model import toy
from tests.model.test_search import prm_of
from tests.model.test_server import serving

SHAPE = """\
toy/001: take it
shipped:toy, judged by shipped:toy, greedy

You see .*
Your task is to: .*
(    policy [ <]\\s*\\d+% .{10}  Q 0\\.\\d\\d .{10}  .*
)+ 1\\. > .*

.*
"""


@pytest.fixture
def agent(tmp_path, toy_engine, monkeypatch):
    """``shipped:toy``, and games in a folder."""
    policy, prm = toy.policy(), prm_of(0.3)
    digests = {
        "policy": save_checkpoint(policy.model, policy.tokenizer, tmp_path / "toy" / "policy", world="toy"),
        "prm": save_checkpoint(prm.model, prm.tokenizer, tmp_path / "toy" / "prm", kind="prm", world="toy"),
    }
    card = {"checkpoints": {kind: {"digest": digest} for kind, digest in digests.items()}}
    (tmp_path / "toy" / "card.json").write_text(json.dumps(card))
    write_table(games_to_table([toy.game(n) for n in range(3)]), tmp_path / "unseen.parquet")
    monkeypatch.setattr(shipping, "FOLDER", tmp_path)
    return tmp_path


def said(capsys, monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["play", *map(str, arguments)])
    play.main()
    return capsys.readouterr().out


def refused(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["play", *map(str, arguments)])
    with pytest.raises(SystemExit) as stopped:
        play.main()
    return str(stopped.value)


def test_the_transcript_has_room_thoughts_choice_and_end(agent, capsys, monkeypatch):
    out = said(capsys, monkeypatch, "--policy", "shipped:toy", "--game", "toy/001", "--max-turns", 4)
    assert re.match(SHAPE, out), out
    assert len(re.findall(r"^ ?\d+\. > ", out, re.MULTILINE)) <= 4
    assert re.search(r"\n(Won|Lost|Not won: no turns left), after \d actions?\.\n$", out)


def test_the_games_of_ones_own_world_are_found_by_the_policys(agent, capsys, monkeypatch):
    trained = agent / "toy" / "policy" / MANIFEST
    trained.write_text(trained.read_text().replace('"toy"', '"tests.model.toy:TOY"'))
    monkeypatch.delitem(worlds._OURS, "toy")
    out = said(capsys, monkeypatch, "--policy", agent / "toy" / "policy", "--games", agent, "--max-turns", 2)
    assert "without a PRM" in out


@pytest.mark.parametrize("way", ["best_of_4", "beam_2x2", "sample"])
def test_every_way_is_printed(agent, capsys, monkeypatch, way):
    out = said(capsys, monkeypatch, "--policy", "shipped:toy", "--way", way, "--max-turns", 3)
    assert f"judged by shipped:toy, {way}\n" in out
    assert ("(sampled " in out) == (way == "best_of_4")


def test_a_policy_without_a_prm_shows_no_scores(agent, capsys, monkeypatch):
    out = said(capsys, monkeypatch, "--policy", agent / "toy" / "policy", "--games", agent, "--max-turns", 2)
    assert "without a PRM" in out and "  Q " not in out and "policy " in out


def test_a_policy_behind_a_server_is_played(agent, capsys, monkeypatch):
    with serving() as server:
        server.policy = load_checkpoint("shipped:toy")
        url = f"http://127.0.0.1:{server.server_port}/v1"
        there = ("--server", url, "--model", "m", "--speech", "text", "--context", 512, "--prm", "shipped:toy")
        out = said(capsys, monkeypatch, *there, "--max-turns", 2)
        assert "m, judged by shipped:toy, greedy" in out and "policy " not in out and "Q 0." in out
        server.fault = lambda number, body: 404
        assert re.match(r"play: http://\S+ did not answer in 1 tries; .* HTTP 404", refused(monkeypatch, *there))
        server.asked.clear()
        server.fault = lambda number, body: 200 if number == 1 else 503
        line = refused(monkeypatch, *there)
        assert len(server.asked) == 4
        told = f"play: the server at {url} does not answer: start it, then run the same command; "
        assert re.match(
            rf"{re.escape(told)}{re.escape(url)}/\S+ did not answer in 3 tries; last: HTTP 503.*; request", line
        )


NOBODY = ("--server", "http://127.0.0.1:9/v1", "--model", "m", "--speech", "text", "--context", 512, "--world", "toy")
"""A server that is not there."""


def test_a_server_that_never_answered_is_all_that_is_said(agent, capsys, monkeypatch):
    """No heading stands before it."""
    monkeypatch.setattr("tasks.commands.play._endpoint", quick)
    line = refused(monkeypatch, *NOBODY)
    assert line.startswith("play: the server at http://127.0.0.1:9/v1 does not answer: start it, then run the ")
    assert "\n" not in line and capsys.readouterr().out == ""


def quick(arguments, prompt):
    return Endpoint(arguments.server, arguments.model, "text", patience=Patience(retries=1, backoff_s=0.01))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--policy", "shipped:tyo"), "shipped:tyo: no such agent is shipped (there are: shipped:toy); did you mean"),
        (
            ("--policy", "shipped:toy", "--game", "toy/01"),
            "games that are generated of toy, unseen, seed 1 (--games: others); the nearest: toy/010, ",
        ),
        (
            ("--policy", "shipped:toy", "--world", "alfworld"),
            "trained from scratch in the world toy, it cannot play alfw",
        ),
        (("--policy", "shipped:toy", "--world", "nowhere"), "'nowhere' is not one of alfworld"),
        (("--policy", "shipped:toy", "--way", "beam"), "--way: 'beam' is not one of greedy, sample, best_of_N"),
        (
            ("--policy", "shipped:toy", "--way", "lookahead_of_2x1"),
            "not a way to play turn by turn: greedy, sample, best_of_N, best_of_N_by_SCORER, beam_NxM (N nodes, M ",
        ),
        (("--policy", "no/such/folder"), "no/such/folder: no such checkpoint folder"),
        (("--policy", "shipped:toy", "--games", "nowhere"), "nowhere: no such folder"),
        (("--policy", "shipped:toy", "--games", "."), "unseen.parquet: no such table, and toy has no"),
    ],
)
def test_what_cannot_be_played_is_one_line(agent, monkeypatch, arguments, message):
    line = refused(monkeypatch, *arguments)
    assert line.startswith("play: ") and message in line and "\n" not in line


def test_only_ways_that_can_be_played_are_offered(agent, monkeypatch):
    line = refused(monkeypatch, "--policy", "shipped:toy", "--way", "foo")
    assert "'foo' is not one of greedy, sample, best_of_N, best_of_N_by_SCORER, beam_NxM" in line
    assert "lookahead" not in line and "best_trajectory" not in line
    monkeypatch.setattr("tasks.commands.play._endpoint", quick)
    assert refused(monkeypatch, *NOBODY, "--way", "foo") == "play: --way: 'foo' is not one of greedy, sample"


def test_a_search_without_a_prm_is_refused(agent, monkeypatch):
    line = refused(monkeypatch, "--policy", agent / "toy" / "policy", "--way", "best_of_4")
    assert line == "play: best_of_4: a PRM must choose: give --prm"


def test_a_model_without_a_chat_template_is_refused(agent, monkeypatch, tmp_path):
    from tests.chat import byte_tokenizer

    tokenizer = byte_tokenizer("")
    model = toy.policy().model
    model.resize_token_embeddings(len(tokenizer))
    model.save_pretrained(tmp_path / "bare")
    tokenizer.save_pretrained(tmp_path / "bare")
    line = refused(monkeypatch, "--policy", tmp_path / "bare")
    assert "nor a chat template; take the model's instruction-tuned version" in line and "\n" not in line


@pytest.mark.parametrize(
    "changes", [("--server", "http://x/v1"), ("--max-turns", "0"), ("--server", "u", "--policy", "x")]
)
def test_arguments_at_odds_are_refused(monkeypatch, capsys, changes):
    assert refused(monkeypatch, *changes) == "2"


def test_a_game_of_another_name_is_answered_with_the_nearest():
    games = [toy.game(n) for n in range(30)]
    assert named_game(games, "toy/007", "here") is games[7]
    with pytest.raises(
        Exception, match=r"toy/07: no such game in here; the nearest: toy/0\d7, .*; or a place from 1 to \d+"
    ):
        named_game(games, "toy/07", "here")


def test_bars_are_as_long_as_their_share():
    assert bar(0.0, 8) == " " * 8 and bar(1.0, 8) == "█" * 8 and bar(0.5, 8) == "████    "
    assert bar(1 / 16, 8) == "▌       " and bar(float("nan"), 3) == "   " and bar(1.7, 2) == "██"
    assert (percent(0.621), percent(0.001), percent(0.0), percent(float("nan"))) == (" 62%", " <1%", "  0%", "    ")
    assert (score(0.834), score(float("nan"))) == ("0.83", "    ")
