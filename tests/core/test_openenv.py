"""Environments behind OpenEnv servers: the same episodes as at home, also when a server goes away."""

from __future__ import annotations

import json
import math
import os
import random
import re
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
from websockets.protocol import State

from agentprm_core.errors import DataError
from agentprm_core.rollout import play, starts
from agentprm_core.types import Game
from agentprm_core.worlds import openenv, world_spec
from agentprm_core.worlds.arithmetic.spec import ARITHMETIC
from agentprm_core.worlds.openenv import Address, OpenEnvEngine, Session, answer, ask, openenv_world
from agentprm_core.worlds.serving import served_game
from tasks.commands.generated import generated
from tasks.frame.params import load_params
from tasks.serve_world import SESSIONS, require_free, served_games
from tests.core.test_mixture import AtRandom
from tests.openenv_double import Double, serving
from tests.waiting import free_port, nobody_listens, until

PYTHON = os.environ.get("AGENTPRM_OPENENV_PYTHON")
"""A Python that has openenv, pyarrow and numpy: its pins clash with ours, so it is another environment's."""


@pytest.fixture
def as_world(monkeypatch):
    """Names a spec for the loop that plays."""

    def named(spec):
        for module in ("rollout", "worlds.guarded"):
            monkeypatch.setattr(f"agentprm_core.{module}.world_spec", lambda name: spec)
        return spec

    return named


def tasks(count, split="train"):
    return [Game(f"{split}/{i}", "served", split, "task", "do the task.", f"{split} {i}") for i in range(count)]


@pytest.fixture(scope="module")
def at_home():
    own = ARITHMETIC.generate(20, 1, "train")[:8]
    played = play(AtRandom(), [s for s in starts_of(own)], world_name="arithmetic", max_turns=10)
    return {e.seed: e for e in played}


def starts_of(games):
    return [start.__class__(start.game, 0, number) for number, start in enumerate(starts(games, 1, 0))]


def compared(served, home):
    """Both as (what was seen and done, won, reward); keys of states are digests of other things."""

    def plain(episode):
        return [(t.observation, t.action, t.admissible, t.valid) for t in episode.turns], episode.won, episode.reward

    assert {seed: plain(e) for seed, e in served.items()} == {seed: plain(e) for seed, e in home.items()}


def test_served_episodes_are_those_at_home(as_world, at_home):
    with serving(double := Double(ARITHMETIC)) as url:
        as_world(openenv_world("served", [url]))
        played = play(AtRandom(), starts_of(tasks(8)), world_name="served", max_turns=10)
        compared({e.seed: e for e in played}, at_home)
        assert double.sessions <= 3  # as many as seats: a session is used for the next episode


@pytest.mark.parametrize("dies_after", [0, 1, 4, 9])
def test_a_server_that_goes_away_costs_no_episode(as_world, at_home, dies_after):
    dying, other = Double(ARITHMETIC, dies_after=dies_after), Double(ARITHMETIC)
    with serving(dying) as first, serving(other) as second:
        as_world(openenv_world("served", [first, second]))
        played = list(play(AtRandom(), starts_of(tasks(8)), world_name="served", max_turns=10))
        compared({e.seed: e for e in played}, at_home)
        assert len(played) == 8 and other.steps > 0


def test_no_server_is_said_with_its_address():
    with nobody_listens() as port:
        url = f"http://127.0.0.1:{port}"
        world, said = openenv_world("served", [url]), "start it, or give the address of another"
        with pytest.raises(DataError, match=f"no OpenEnv server answers \\({url}.*{said}"):
            world.make().reset(tasks(1)[0])
        with pytest.raises(DataError, match=f"no OpenEnv server answers \\({url}: .*start one, or give the address of"):
            world.generate(1, 1, "train")
        with pytest.raises(DataError, match=r"give the address of another$"):  # no word of published games: it has none
            generated(world, 1, 1, "train")


class Tasks(BaseHTTPRequestHandler):
    """What a server says of its tasks."""

    def do_GET(self):
        self._say(["served"])

    def do_POST(self):
        self._say({"num_tasks": 9})

    def _say(self, answer):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_):
        pass


def test_games_are_those_of_the_first_server_that_answers():
    with nobody_listens() as dead, ThreadingHTTPServer(("127.0.0.1", 0), Tasks) as living:
        threading.Thread(target=living.serve_forever, daemon=True).start()
        try:
            there = f"http://127.0.0.1:{living.server_port}"
            down, alone = (openenv_world("served", urls) for urls in ([f"http://127.0.0.1:{dead}", there], [there]))
            assert down.generate(4, 1, "train") == alone.generate(4, 1, "train")
            with pytest.raises(DataError, match=f"games: {there} has 9 tasks of 'train', 10 are asked for"):
                down.generate(10, 1, "train")
        finally:
            living.shutdown()


def test_a_server_without_tasks_is_said():
    """It answers, and not to that question."""
    said = "does not say how many tasks of 'train' it has .*splits={}"
    with serving(Double(ARITHMETIC)) as url, pytest.raises(DataError, match=f"{url} {said}"):
        openenv_world("served", [url]).generate(1, 1, "train")


def test_a_game_or_a_split_that_is_not_served_is_said():
    games = {"train": ARITHMETIC.generate(4, 1, "train"), "seen": []}
    assert served_game(games, "train", 0, 3) == games["train"][3]
    assert served_game(games, "train", 6, None) == games["train"][2]
    for index in (4, -1):
        with pytest.raises(IndexError, match=f"^train has 4 games, numbered from 0, not {index}$"):
            served_game(games, "train", 0, index)
    for split in ("seen", "nope"):
        with pytest.raises(IndexError, match=f"^no split '{split}': there are train$"):
            served_game(games, split, 0, 0)


def test_the_only_server_going_away_ends_with_a_line(as_world):
    with serving(Double(ARITHMETIC, dies_after=2)) as url:
        as_world(openenv_world("served", [url]))
        with pytest.raises(DataError, match=r"no OpenEnv server answers|3 sessions ended before the answer .* says$"):
            list(play(AtRandom(), starts_of(tasks(8)), world_name="served", max_turns=10))


def test_a_server_whose_sessions_are_taken_is_said_to_be_full():
    with serving(Double(ARITHMETIC, seats=1)) as url:
        spec = openenv_world("served", [url])
        one, other = spec.make(), spec.make()
        one.reset(tasks(1)[0])
        said = f"train/0: no session is free at {url} \\(Server at capacity: 1 .*--slots, compute.slots.*--sessions\\)$"
        for _ in range(5):  # the server may close the session before it is asked anything, or after
            with pytest.raises(DataError, match=said):
                other.reset(tasks(1)[0])
        assert not one.step("nonsense").done


def test_a_server_has_a_session_for_each_slot():
    assert load_params(Path("params.yaml")).compute.slots <= SESSIONS


def test_a_server_that_says_something_else_is_no_replacement(as_world):
    dying, other = Double(ARITHMETIC, dies_after=4), Double(ARITHMETIC, lies=True)
    with serving(dying) as first, serving(other) as second:
        spec = openenv_world("served", [first, second])
        world = spec.make()
        world.reset(tasks(1)[0])
        with pytest.raises(DataError, match=r"step 0 says .* Really.*must be deterministic"):
            for _ in range(6):
                world.step("nonsense")


def test_a_session_that_is_given_up_is_ended(monkeypatch):
    """A server serves only so many: of one that answers too late three were tried, one was left with a question."""
    asked = []
    monkeypatch.setattr(openenv, "ask", lambda session, kind, data: asked.append(kind) or ask(session, kind, data))
    impatient = lambda session, seconds: answer(session, 0.1 if asked[-1] == "step" else seconds)  # noqa: E731
    monkeypatch.setattr(openenv, "answer", impatient)
    gate = threading.Event()
    with serving(late := Double(ARITHMETIC, gate=gate)) as url:
        world = openenv_world("served", [url]).make()
        try:
            world.reset(tasks(1)[0])
            with pytest.raises(DataError, match="3 sessions ended before the answer came"):
                world.step("nonsense")
            world.reset(tasks(1)[0])
            world.begin("nonsense")
            world.reset(tasks(1)[0])
        finally:
            gate.set()  # an answer to a session that was ended cannot be sent
        until(lambda: late.live == 1)
        assert late.sessions == 5


def test_sessions_that_a_server_closed_are_not_taken_again():
    """It was started anew between two episodes: eight of its sessions lie free, all of them dead."""
    with serving(Double(ARITHMETIC)) as url:
        address = Address((url,))
        dead, living = (Session(url, SimpleNamespace(state=state)) for state in (State.CLOSED, State.OPEN))
        for session in [living, *[dead] * 8]:
            address.free(session)
        assert address.session() is living
        address.free(living)
        fresh = address.session(fresh=True)
        with fresh.socket:
            assert fresh is not living and fresh.socket.state is State.OPEN


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"observation": {"text": "a", "admissible": ["b"]}, "reward": math.nan}, "says that the reward is nan"),
        ({"observation": {"text": "a", "admissible": ["b"]}, "reward": 7}, "has paid 7 .*, not 0 to 1: .*ds="),
        ({"observation": {"text": "a", "admissible": ["b"]}, "reward": -0.1}, "has paid -0.1 in this episode"),
        ({"observation": {"text": "a", "admissible": ["b"]}, "reward": "much"}, "cannot be read .*much"),
        ({"observation": {"text": "a", "admissible": None}}, "cannot be read .*NoneType"),
        ({"observation": None}, "cannot be read"),
    ],
)
def test_an_answer_that_is_none_is_said(said, why):
    engine = asked_by(rewards=(0.0, 1.0))
    with pytest.raises(DataError, match=f"the OpenEnv server http://a {why}"):
        engine._observation(said, 0.0)
    for text in ("<html>", "[1]", '{"data": null}'):
        with pytest.raises(DataError, match="the answer of the OpenEnv server http://a is not an object with data"):
            answer(Session("http://a", SimpleNamespace(recv=lambda timeout, text=text: text)), 1.0)


def asked_by(rewards):
    """An engine in a session."""
    engine = OpenEnvEngine(openenv_world("served", ["http://a"], rewards=rewards).make()._engine._how)
    engine._session = Session("http://a", None)
    return engine


def test_sums_of_rewards_become_numbers_from_0_to_1():
    engine, observation = asked_by(rewards=(-2.0, 8.0)), {"text": "a", "admissible": ["b"]}
    earned = [engine._observation({"observation": observation, "reward": r}, 1.0).reward for r in (-3, 0, 2, 7 + 1e-9)]
    assert earned == pytest.approx([0.0, 0.3, 0.5, 1.0]) and max(earned) <= 1.0  # steps add up to a bit more


class Breaks:
    """Arithmetic up to its second step."""

    def __init__(self):
        self._world, self._steps = ARITHMETIC.make(), 0

    def reset(self, game):
        return self._world.reset(game)

    def step(self, command):
        self._steps += 1
        return self._world.step(command) if self._steps < 2 else [][0]


def test_a_fault_of_the_environment_names_server_game_and_step(as_world):
    with serving(Double(replace(ARITHMETIC, make=Breaks))) as url:
        as_world(openenv_world("served", [url]))
        said = rf"^served, train/0, step 2 \('.*'\): the OpenEnv server {url} refuses: EXECUTION_ERROR: .*world served$"
        with pytest.raises(DataError, match=said):
            list(play(AtRandom(), starts_of(tasks(1)), world_name="served", max_turns=10))


def test_the_fields_that_a_server_cannot_send_are_said():
    data = {"code": "VALIDATION_ERROR", "message": "Invalid message", "errors": [{"loc": ["text"], "msg": "no string"}]}
    text = json.dumps({"type": "error", "data": data})
    with pytest.raises(DataError, match=r"http://a refuses: VALIDATION_ERROR: Invalid message .*\['text'\].*no string"):
        answer(Session("http://a", SimpleNamespace(recv=lambda timeout: text)), 1.0)


def test_what_the_environment_refuses_is_said(as_world):
    with serving(Double(ARITHMETIC)) as url, pytest.raises(DataError, match="EXECUTION_ERROR: Invalid task index"):
        openenv_world("served", [url]).make().reset(Game("a", "served", "train", "task", "do it.", "train 999"))
    with serving(Double(ARITHMETIC)) as url, pytest.raises(DataError, match="a: the payload 'x' is not SPLIT INDEX"):
        openenv_world("served", [url]).make().reset(Game("a", "served", "train", "task", "do it.", "x"))


def test_what_cannot_be_a_world_is_refused():
    with pytest.raises(ValueError, match="host:80 is not http://HOST:PORT"):
        openenv_world("served", ["host:80"])
    with pytest.raises(ValueError, match="no address is not"):
        openenv_world("served", [])
    with pytest.raises(ValueError, match="rewards from 1 to 1 is no range"):
        openenv_world("served", ["http://a"], rewards=(1, 1))
    spec = openenv_world("served", ["http://a"], splits={})
    assert not spec.clones
    assert [len(spec.generate(5, 1, split)) for split in ("train", "seen", "unseen")] == [5, 5, 5]
    with pytest.raises(DataError, match="Best-of-N by turn needs no clones"):
        spec.make().clone()


SERVE = """
import sys, types
from tasks.serve_world import main
for name in ("openenv", "openenv.core", "openenv.core.env_server", "uvicorn"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["openenv.core.env_server"].create_app = None
sys.modules.update(dict.fromkeys({missing!r}))
sys.argv = ["serve_world", *{asked!r}]
main()
"""


@pytest.mark.integration
@pytest.mark.parametrize(
    ("asked", "missing", "said"),
    [
        (["gsm8k"], [], "gsm8k has no generator: give --root, the folder or archive of its published games"),
        (["arithmetic", "--root", "."], [], "--root: arithmetic has no published games"),
        (["webshop"], ["regex"], "'webshop' cannot be imported: .*regex.*: pip install regex"),
        (["all_worlds"], ["regex"], "'all_worlds' cannot be imported: .*regex.*: pip install regex"),
        (["babyai"], ["minigrid"], "babyai needs minigrid.*: pip install minigrid==3.2.0 gymnasium==1.4.0"),
        (
            ["strange:SPEC"],
            [],
            "'strange:SPEC' cannot be imported: No module named 'strange'; is the folder .*",
        ),
    ],
)
def test_a_world_that_cannot_be_served_says_what_to_install_or_give(asked, missing, said):
    program = SERVE.format(asked=[*asked, "--port", str(free_port())], missing=missing)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.returncode == 1 and re.fullmatch(f"serve_world: {said}\n", ran.stderr), ran.stderr


def test_an_address_that_cannot_be_listened_at_is_said():
    require_free("127.0.0.1", free_port())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = f"^cannot listen at 127.0.0.1:{port} \\(Address already in use\\): give another --port or --host$"
        with pytest.raises(DataError, match=said):
            require_free("127.0.0.1", port)


def test_published_games_are_served_in_our_splits(tmp_path):
    for file in ("train", "test"):
        problems = [{"question": f"{file}: {n} cups, all red?", "answer": f"Yes.\n#### {n}"} for n in range(90)]
        (tmp_path / f"{file}.jsonl").write_text("\n".join(map(json.dumps, problems)))
    games = served_games(world_spec("gsm8k"), tmp_path, 50, 1)
    assert {split: len(found) for split, found in games.items()} == {"train": 50, "seen": 5, "unseen": 5}


@pytest.mark.slow
@pytest.mark.skipif(PYTHON is None, reason="AGENTPRM_OPENENV_PYTHON names no Python that has openenv")
def test_our_server_serves_the_world_as_it_is(as_world, tmp_path):
    """The published server and its task interface, our client: an episode of each of 10 games, step by step."""
    port = free_port()
    command = [PYTHON, "-m", "tasks.serve_world", "textcraft", "--games", "30", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None and "30 games of train" in server.stdout.readline()
            spec, home = openenv_world("served", [f"http://127.0.0.1:{port}"]), world_spec("textcraft")
            own = home.generate(30, 1, "train")
            for game in until(lambda: _asked(spec, 10)):
                there, here, rng = spec.make(), home.make(), random.Random(game.id)
                seen, wanted = there.reset(game), here.reset(own[int(game.payload.split()[1])])
                for _ in range(home.max_turns):
                    assert seen == wanted
                    if seen.done:
                        break
                    chosen = rng.choice(wanted.admissible)
                    seen, wanted = there.step(chosen), here.step(chosen)
        finally:
            server.terminate()


def _asked(spec, count):
    """None at first: the server listens a moment after it has said its games."""
    try:
        return spec.generate(count, 1, "train")
    except DataError:
        return None
