"""A policy behind an OpenAI-compatible server (vLLM, SGLang, ``transformers serve``) as a player of the rollout loop.

Two ways to speak. ``text`` sends the plain rendering of a policy trained here, marks and all, to ``/completions``;
``chat`` sends user and assistant messages to ``/chat/completions``, for published models. Each seat has one
conversation and at most its samples' requests under way; what the server keeps of a conversation's prefix is its
business (vLLM and SGLang cache it by themselves).

A request is tried again after a dropped connection, a time-out, 429 and 5xx, with growing pauses; then
:class:`ServerError` names the endpoint and the request. Decisions that were complete by then are handed out before
the error, so the loop has yielded every episode that could end.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from typing import Self

import httpx

from agentprm_core.policy.decoding import Decision
from agentprm_core.policy.prompt import ACT, BOS, END, chat_message, chat_reply, parse_reply
from agentprm_core.policy.sampler import Cost
from agentprm_core.rollout import episode_seed

SPEECH = ("text", "chat")


class ServerError(RuntimeError):
    """A server that does not answer, or not with a completion. Names the endpoint, the request and what was said."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the policy is, and how patient to be."""

    url: str
    """Up to and with the version: ``http://localhost:8000/v1``."""
    model: str
    speech: str
    """``text`` or ``chat``."""
    api_key: str | None = None
    timeout_s: float = 120.0
    """Of one try."""
    retries: int = 5
    """Tries after the first."""
    backoff_s: float = 0.5
    """Pause before the first of them; it doubles from one to the next."""
    log_probs: bool = False
    """Ask for log-probabilities. Without, ``Decision.log_prob`` is NaN."""
    extra: Mapping[str, object] = field(default_factory=dict)
    """Further fields of every request, as the server knows them (``{"top_k": 0}``)."""

    def __post_init__(self) -> None:
        if self.speech not in SPEECH:
            raise ValueError(f"speech {self.speech!r} is not one of {', '.join(SPEECH)}")


@dataclass(slots=True)
class _Seat:
    seed: int
    messages: list[dict[str, str]] = field(default_factory=list)
    turn: int = -1
    tokens: int = 0
    """Of the conversation up to the last reply, as the server counts."""
    requests: list[Future] = field(default_factory=list)
    cost: Cost = field(default_factory=Cost)


@dataclass(frozen=True, slots=True)
class _Reply:
    text: str
    log_prob: float
    prompt_tokens: int
    completion_tokens: int


class ServerPlayer:
    """Plays the policy at ``endpoint`` in up to ``seats`` episodes at once. Close it, or use it in a ``with``."""

    def __init__(
        self, endpoint: Endpoint, *, seats: int, context: int, temperature: float, max_action_tokens: int
    ) -> None:
        """``seats`` also bounds the requests under way. Raises ValueError for values outside their range."""
        if seats < 1 or temperature < 0:
            raise ValueError(f"seats {seats} must be at least 1, temperature {temperature} at least 0")
        self.seats = seats
        self._endpoint, self._context = endpoint, context
        self._temperature, self._max_action_tokens = temperature, max_action_tokens
        self._seats: dict[int, _Seat] = {}
        self._opened = 0
        self._loop = asyncio.new_event_loop()  # a thread of its own: worlds are stepped while requests are under way
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        key = {"Authorization": f"Bearer {endpoint.api_key}"} if endpoint.api_key else {}
        limits = httpx.Limits(max_connections=seats, max_keepalive_connections=seats)
        self._client = httpx.AsyncClient(headers=key, timeout=endpoint.timeout_s, limits=limits)
        self._room = asyncio.Semaphore(seats)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shut_down()

    def shut_down(self) -> None:
        """Cancel what is under way and close the connections."""
        for seat in list(self._seats):
            self.close(seat)
        asyncio.run_coroutine_threadsafe(self._client.aclose(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def open(self, seed: int) -> int:
        self._opened += 1
        self._seats[self._opened] = _Seat(seed)
        return self._opened

    def see(self, seat: int, observation: str, admissible: tuple[str, ...]) -> bool:
        """Append an observation; False where the context might have no room for it and a reply (a token is at least
        a character)."""
        state = self._seats[seat]
        text = observation
        if self._endpoint.speech == "chat":
            text = chat_message(observation, not state.messages, admissible)
        if state.tokens + len(text) + self._max_action_tokens > self._context:
            return False
        state.messages.append({"role": "user", "content": text})
        state.turn += 1
        return True

    def ask(self, seat: int, samples: int = 1) -> None:
        state = self._seats[seat]
        state.requests = [
            asyncio.run_coroutine_threadsafe(self._request(self._body(state, sample)), self._loop)
            for sample in range(samples)
        ]

    def tell(self, seat: int, action: str, reason: str = "") -> None:
        said = chat_reply(action, reason) if self._endpoint.speech == "chat" else action
        self._seats[seat].messages.append({"role": "assistant", "content": said})

    def tick(self) -> list[tuple[int, tuple[Decision, ...]]]:
        """Wait for the next reply; the seats whose replies are all there.

        Raises :class:`ServerError` where a request has failed for good, once no seat is complete.
        """
        while True:
            done = [seat for seat, state in self._seats.items() if _answered(state)]
            if done:
                return [(seat, self._decisions(self._seats[seat])) for seat in done]
            waiting = [request for state in self._seats.values() for request in state.requests]
            failed = [request for request in waiting if request.done() and request.exception() is not None]
            if failed:
                raise failed[0].exception()
            wait([request for request in waiting if not request.done()], return_when=FIRST_COMPLETED)

    def close(self, seat: int) -> Cost:
        state = self._seats.pop(seat)
        for request in state.requests:
            request.cancel()
        return state.cost

    def _decisions(self, state: _Seat) -> tuple[Decision, ...]:
        replies: list[_Reply] = [request.result() for request in state.requests]
        state.requests = []
        state.tokens = max(reply.prompt_tokens + reply.completion_tokens for reply in replies)
        state.cost += Cost(
            generated=sum(reply.completion_tokens for reply in replies),
            policy_read=sum(reply.prompt_tokens for reply in replies),
        )
        counts: dict[tuple[str, str], tuple[int, float]] = {}
        for reply in replies:
            said = parse_reply(reply.text) if self._endpoint.speech == "chat" else ("", reply.text.strip())
            counts[said] = (counts.get(said, (0, 0.0))[0] + 1, reply.log_prob)
        decisions = [Decision(action, reason, lp, count) for (reason, action), (count, lp) in counts.items()]
        return tuple(sorted(decisions, key=lambda decision: -decision.count))

    def _body(self, state: _Seat, sample: int) -> dict:
        body = {
            "model": self._endpoint.model,
            "max_tokens": self._max_action_tokens,
            "temperature": self._temperature,
            "seed": episode_seed(state.seed, state.turn, sample) % 2**31,
            **self._endpoint.extra,
        }
        if self._endpoint.speech == "chat":
            return {
                **body,
                "messages": list(state.messages),
                **({"logprobs": True} if self._endpoint.log_probs else {}),
            }
        said = "".join(m["content"] + (ACT if m["role"] == "user" else END) for m in state.messages)
        return {**body, "prompt": BOS + said, **({"logprobs": 0} if self._endpoint.log_probs else {})}

    async def _request(self, body: dict) -> _Reply:
        """One completion, tried until it comes or patience ends."""
        path = "/chat/completions" if self._endpoint.speech == "chat" else "/completions"
        url = self._endpoint.url.rstrip("/") + path
        for attempt in range(self._endpoint.retries + 1):
            if attempt:
                await asyncio.sleep(self._endpoint.backoff_s * 2 ** (attempt - 1))
            try:
                async with self._room:
                    response = await self._client.post(url, json=body)
            except httpx.TransportError as error:
                said = f"{type(error).__name__}: {error}"
                continue
            if response.is_success:
                return self._reply(response.json(), url, body)
            said = f"HTTP {response.status_code}: {response.text[:300]}"
            if response.status_code != 429 and response.status_code < 500:
                raise _error(url, body, attempt + 1, said)
        raise _error(url, body, self._endpoint.retries + 1, said)

    def _reply(self, answer: dict, url: str, body: dict) -> _Reply:
        try:
            choice, usage = answer["choices"][0], answer["usage"]
            text = choice["message"]["content"] if self._endpoint.speech == "chat" else choice["text"]
            log_prob = _log_prob(choice, self._endpoint.speech) if self._endpoint.log_probs else math.nan
            return _Reply(text or "", log_prob, usage["prompt_tokens"], usage["completion_tokens"])
        except (KeyError, IndexError, TypeError) as error:
            raise _error(url, body, 1, f"an answer without {error}: {str(answer)[:300]}") from error


def _log_prob(choice: dict, speech: str) -> float:
    """The sum over the reply's tokens; NaN where the server gives none."""
    given = choice.get("logprobs")
    if given is None:
        return math.nan
    return sum(token["logprob"] for token in given["content"]) if speech == "chat" else sum(given["token_logprobs"])


def _answered(state: _Seat) -> bool:
    return bool(state.requests) and all(r.done() and r.exception() is None for r in state.requests)


def _error(url: str, body: dict, tries: int, said: str) -> ServerError:
    asked = body["prompt"] if "prompt" in body else body["messages"][-1]["content"]
    request = f"model {body['model']!r}, seed {body['seed']}, ending in {asked[-80:]!r}"
    return ServerError(f"{url} did not answer in {tries} tries; request: {request}; last: {said}")
