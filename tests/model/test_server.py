"""A policy behind a server plays as it does here; servers that stumble are asked again, dead ones are named."""

import json
import math
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch

from agentprm_core.policy.models import save_checkpoint
from agentprm_core.policy.prompt import chat_message
from agentprm_core.policy.requests import Patience, ServerError
from agentprm_core.policy.sampler import Sampler
from agentprm_core.policy.server import Endpoint, ServerPlayer
from agentprm_core.rollout import play, starts
from agentprm_core.types import Prompt
from tests.model import toy
from tests.model.served_by_transformers import needs_transformers_serve, transformers_serve
from tests.running import running

GAMES = [toy.game(n) for n in range(6)]
LOCK = threading.Lock()
PATIENCE = Patience(retries=2, backoff_s=0.01)


class Completions(BaseHTTPRequestHandler):
    """``/v1/completions`` of the toy policy, greedy or by the request's seed; the server's ``fault`` may interfere."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.endswith("load_lora_adapter"):
            self.say(*self.server.loras.answer(self.path, body, self.headers.get("Authorization")))
            return
        with LOCK:
            self.server.asked.append((self.path, body, self.headers.get("Authorization")))
            status = self.server.fault(len(self.server.asked), body)
        if status is None:
            self.close_connection = True  # hangs up without a word
            return
        self.say(status, complete(body, self.server.policy) if status == 200 else {"error": "no"})

    def do_GET(self):
        assert self.path == "/v1/models"
        self.say(200, {"data": [{"id": name} for name in self.server.loras.names]})

    def say(self, status, said):
        answer = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


class Loras:
    """The adapters of a server that is of a ``kind``: ``vllm``, ``sglang``, or one that can load none."""

    def __init__(self, kind="", names=()):
        self.kind, self.names, self.told, self.refuses = kind, list(names), [], None

    def answer(self, path, body, key=None):
        self.told.append((path, body, key))
        if self.kind != ("vllm" if path.startswith("/v1/") else "sglang"):
            return 404, {"detail": "Not Found"}
        if self.refuses:
            return self.refuses
        name = body["lora_name"]
        if "unload" in path:
            self.names.remove(name)
        elif name in self.names:
            return 400, {"error": {"message": f"The lora adapter '{name}' has already been loaded."}}
        else:
            self.names.append(name)
        return 200, "Success"


def complete(body, policy):
    if "messages" in body:
        words = {"content": "REASON:\nnothing better\nACTION:\nlook"}
        logprobs = {"content": [{"logprob": -0.5}, {"logprob": -0.25}]}
        choice = {"message": words, "logprobs": logprobs}
        return {"choices": [choice], "usage": {"prompt_tokens": 30, "completion_tokens": 8}}
    ids = policy.tokenizer.encode(body["prompt"], add_special_tokens=False)
    with LOCK, torch.inference_mode():
        torch.manual_seed(body["seed"])
        sampled = {"do_sample": True, "temperature": body["temperature"], "top_k": 0} if body["temperature"] else {}
        settings = {"do_sample": False, **sampled, "max_new_tokens": body["max_tokens"]}
        written = policy.model.generate(torch.tensor([ids]), eos_token_id=policy.renderer.stop_token, **settings)
    said = written[0, len(ids) :].tolist()
    usage = {"prompt_tokens": len(ids), "completion_tokens": len(said)}
    return {"choices": [{"text": policy.tokenizer.decode(said, skip_special_tokens=True)}], "usage": usage}


class Double(ThreadingHTTPServer):
    def handle_error(self, request, client_address):
        if not isinstance(sys.exception(), ConnectionError):  # a client that has gone, which may be told of late
            super().handle_error(request, client_address)


@contextmanager
def serving(fault=lambda number, body: 200, loras=None):
    server = Double(("127.0.0.1", 0), Completions)
    server.fault, server.asked, server.policy, server.loras = fault, [], toy.policy(), loras or Loras()
    with running(server):
        yield server


def player(server, speech="text", temperature=0.0, seats=3, context=512, **endpoint):
    url = f"http://127.0.0.1:{server.server_port}/v1"
    there = Endpoint(url=url, model="toy", speech=speech, patience=PATIENCE, **endpoint)
    return ServerPlayer(there, seats=seats, context=context, temperature=temperature, max_action_tokens=8)


def played(player, engine, games=GAMES, max_turns=4):
    return sorted(play(player, starts(games, 1, 3), world_name=engine, max_turns=max_turns), key=lambda e: e.game_id)


def test_greedy_episodes_are_those_of_the_sampler(toy_engine):
    here = Sampler(toy.policy(), slots=3, context=512, temperature=0.0, constrained=False, max_action_tokens=8)
    with serving() as server, player(server) as there:
        assert played(there, toy_engine) == played(here, toy_engine)
        assert all(path == "/v1/completions" for path, _, _ in server.asked)


def test_sampled_episodes_depend_on_their_seed_alone(toy_engine):
    with serving() as server:
        with player(server, temperature=1.0, seats=1) as alone:
            one_by_one = played(alone, toy_engine)
        with player(server, temperature=1.0, seats=5) as together:
            assert played(together, toy_engine) == one_by_one


def stumbling(*plans):
    """A fault that refuses the first requests: each takes the next of ``plans``, and its tries meet those statuses.

    What counts is the request and not its number at the server, since requests come together and in any order.
    """
    waiting, met = list(plans), {}

    def fault(_, body):
        request = json.dumps(body, sort_keys=True)
        if request not in met:
            met[request] = list(waiting.pop(0)) if waiting else []
        return met[request].pop(0) if met[request] else 200

    return fault


def test_a_server_that_stumbles_is_asked_again(toy_engine):
    with serving() as server, player(server) as there:
        calm = played(there, toy_engine, GAMES[:2])
        asked = len(server.asked)
    with serving(stumbling([503, None], [429], [500])) as server, player(server) as there:
        assert played(there, toy_engine, GAMES[:2]) == calm
        assert len(server.asked) == asked + 4


def test_a_dead_server_is_named_and_loses_no_finished_episode(toy_engine):
    finished = []
    with serving(lambda number, body: 200 if number <= 14 else 503) as server, player(server) as there:
        with pytest.raises(ServerError) as error:
            for episode in play(there, starts(GAMES, 1, 3), world_name=toy_engine, max_turns=3):
                finished.append(episode)
        message = str(error.value)
        assert f"http://127.0.0.1:{server.server_port}/v1/completions did not answer in 3 tries" in message
        assert "model 'toy', seed " in message
        assert "last: HTTP 503" in message
    assert len(finished) >= 3


def together(*servers, **how):
    """A player at several servers."""
    urls = [f"http://127.0.0.1:{server.server_port}/v1" for server in servers]
    there = Endpoint(urls[0], "toy", "text", patience=PATIENCE, also=tuple(urls[1:]))
    return ServerPlayer(there, seats=4, context=512, temperature=1.0, max_action_tokens=8, **how)


def test_several_servers_share_the_episodes(toy_engine):
    with serving() as one, player(one, temperature=1.0) as alone:
        expected = played(alone, toy_engine)
    with serving() as one, serving() as two, together(one, two) as there:
        assert played(there, toy_engine) == expected
        assert min(len(one.asked), len(two.asked)) > 0.25 * (len(one.asked) + len(two.asked))


@pytest.mark.parametrize("status", [503, None])
def test_the_episodes_of_a_dead_server_go_on_at_another(toy_engine, capfd, status):
    with serving() as one, player(one, temperature=1.0) as alone:
        expected = played(alone, toy_engine)
    with (
        serving() as one,
        serving(lambda number, body: 200 if number <= 5 else status) as two,
        together(one, two) as there,
    ):
        assert played(there, toy_engine) == expected, "each once, with the same draws"
        assert len(two.asked) <= 5 + 4 * (1 + PATIENCE.retries), "it is not asked any more"
    (line,) = (said for said in capfd.readouterr().err.splitlines() if "is not asked any more" in said)
    assert f"127.0.0.1:{two.server_port}/v1 is not asked any more, others are: " in line


def test_several_servers_none_of_which_answers_are_one_line(toy_engine):
    with (
        serving(lambda number, body: 503) as one,
        serving(lambda number, body: 503) as two,
        together(one, two) as there,
        pytest.raises(ServerError, match=r"^no server answers: start it, .*; the last: .*HTTP 503") as error,
    ):
        played(there, toy_engine)
    assert "\n" not in str(error.value)


def test_a_request_that_one_server_refuses_is_not_sent_to_another(toy_engine):
    with (
        serving(lambda number, body: 422) as one,
        serving(lambda number, body: 422) as two,
        together(one, two) as there,
        pytest.raises(ServerError, match=r"in 1 tries.*HTTP 422"),
    ):
        played(there, toy_engine)


def test_nobody_there_is_an_error_with_the_address():
    there = Endpoint(url="http://127.0.0.1:9/v1", model="toy", speech="text", patience=PATIENCE)
    with ServerPlayer(there, seats=1, context=512, temperature=0.0, max_action_tokens=8) as nobody:
        seat = nobody.open(0)
        nobody.see(seat, "You see a cabinet 1.", ("look",))
        nobody.ask(seat)
        told = r"^the server at http://127.0.0.1:9/v1 does not answer: start it, .*/completions did .* in 3.*Connect"
        with pytest.raises(ServerError, match=told):
            nobody.tick()


def test_a_refused_request_is_not_repeated(toy_engine):
    with serving(lambda number, body: 422) as server, player(server, seats=1) as there:
        with pytest.raises(ServerError, match=r"in 1 tries.*HTTP 422"):
            played(there, toy_engine, GAMES[:1])
        assert len(server.asked) == 1


def test_chat_speaks_in_messages_with_a_key_and_reads_log_probs():
    with serving() as server, player(server, "chat", api_key="secret", log_probs=True) as there:
        seat = there.open(7)
        there.see(seat, "You see a cabinet 1.", ("look",))
        there.ask(seat, samples=2)
        (_, (decision,)) = there.tick()[0]
        assert (decision.action, decision.reason, decision.log_prob, decision.count) == (
            "look",
            "nothing better",
            -0.75,
            2,
        )
        there.tell(seat, "look", "why not")
        there.see(seat, "Nothing happens.", ("look",))
        there.ask(seat)
        there.tick()
        path, body, key = server.asked[-1]
        assert (path, key, body["logprobs"]) == ("/v1/chat/completions", "Bearer secret", True)
        assert [m["role"] for m in body["messages"]] == ["user", "assistant", "user"]
        assert body["messages"][0]["content"] == chat_message("You see a cabinet 1.", True, ("look",), Prompt())
        assert body["messages"][1]["content"] == "REASON:\nwhy not\nACTION:\nlook"
        assert len({b["seed"] for _, b, _ in server.asked}) == 3
        assert there.close(seat).generated == 24


def test_a_conversation_that_might_outgrow_the_context_ends():
    with serving() as server, player(server, context=60) as there:
        seat = there.open(7)
        assert there.see(seat, "You see a cabinet 1.", ("look",))
        there.ask(seat)
        (_, (decision,)) = there.tick()[0]
        assert math.isnan(decision.log_prob)
        there.tell(seat, decision.action)
        assert not there.see(seat, "You arrive at cabinet 1. On it, you see a mug 1.", ("look",))


def test_to_wait_for_what_nobody_asked_is_a_fault():
    with serving() as server, player(server) as there:
        there.see(there.open(7), "You see a cabinet 1.", ("look",))
        with pytest.raises(AssertionError, match="none of 1 seats was asked"):
            there.tick()


def test_values_out_of_range_are_refused():
    with pytest.raises(ValueError, match="speech 'telepathy' is not one of text, chat"):
        Endpoint(url="http://localhost", model="toy", speech="telepathy")
    with pytest.raises(ValueError, match="seats 0 must be at least 1"):
        ServerPlayer(Endpoint("u", "m", "text"), seats=0, context=9, temperature=0, max_action_tokens=8)


def test_an_answer_of_another_kind_is_shown(toy_engine):
    said = r"answered otherwise than asked.*an answer without 'choices'.*error"
    with serving(lambda number, body: 299) as server, player(server) as there, pytest.raises(ServerError, match=said):
        played(there, toy_engine)


@pytest.mark.slow
@needs_transformers_serve
def test_transformers_serve_says_what_the_sampler_says(toy_engine, tmp_path):
    policy = toy.policy()
    save_checkpoint(policy.model, policy.tokenizer, tmp_path / "policy")
    with transformers_serve(tmp_path / "policy") as address:
        there = Endpoint(url=address, model=str(tmp_path / "policy"), speech="text")
        here = Sampler(policy, slots=3, context=512, temperature=0.0, constrained=False, max_action_tokens=8)
        with ServerPlayer(there, seats=2, context=512, temperature=0.0, max_action_tokens=8) as player:
            assert played(player, toy_engine, GAMES[:3]) == played(here, toy_engine, GAMES[:3])
