"""A policy behind an OpenAI-compatible server (vLLM, SGLang, ``transformers serve``) as a player of the rollout loop.

Two ways to speak. ``text`` sends the plain rendering of a policy trained here, marks and all, to ``/completions``;
``chat`` sends user and assistant messages to ``/chat/completions``, for published models. Each seat has one
conversation and at most its samples' requests under way; what the server keeps of a conversation's prefix is its
business (vLLM and SGLang cache it by themselves).

Decisions that are complete when a request fails for good are handed out before the error, so the loop has yielded every
episode that could end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from typing import Self

from agentprm_core.policy.adapters import PREFIX, Ready, load_adapter
from agentprm_core.policy.decoding import Decision
from agentprm_core.policy.models import Checkpoint
from agentprm_core.policy.prompt import ACT, BOS, END, chat_message, chat_reply, parse_reply
from agentprm_core.policy.requests import Patience, Requests
from agentprm_core.policy.sampler import Cost
from agentprm_core.policy.speech import SPEECH
from agentprm_core.seeding import episode_seed
from agentprm_core.types import NO_PROMPT, Prompt


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the policy is."""

    url: str
    """Up to and with the version: ``http://localhost:8000/v1``."""
    model: str
    """As the server knows it: a folder, an id, or the name of a LoRA adapter."""
    speech: str
    """``text`` or ``chat``."""
    prompt: Prompt = NO_PROMPT
    """The world's, for a ``chat``."""
    api_key: str | None = None
    patience: Patience = field(default_factory=Patience)
    log_probs: bool = False
    """Ask for log-probabilities. Where they are not asked for or not given, ``Decision.log_prob`` is NaN."""
    extra: Mapping[str, object] = field(default_factory=dict)
    """Further fields of every request, as the server knows them (``{"top_k": 0}``)."""
    steering: bool = False
    """Whether the first message of a ``chat`` also asks to explore."""
    also: tuple[str, ...] = ()
    """Further servers with the same model, as ``url``. They share the episodes. One that does not answer for good is
    left out, and its episodes go on at the others."""

    def __post_init__(self) -> None:
        if self.speech not in SPEECH:
            raise ValueError(f"speech {self.speech!r} is not one of {', '.join(SPEECH)}")


@dataclass(frozen=True)
class Servers:
    """Servers that have the policy of a stage, whichever it is."""

    urls: tuple[str, ...]
    """Each up to and with the version: ``http://localhost:8000/v1``."""
    api_key: str | None = field(default=None, repr=False)
    patience: Patience = field(default_factory=Patience)

    def endpoint(self, policy: Checkpoint) -> Endpoint:
        """``policy`` there, under :func:`served_name`, in the form of its own prompts, with log-probabilities.

        A LoRA adapter is loaded there first; raises as :func:`agentprm_core.policy.adapters.load_adapter`.
        """
        renderer, name, asked = policy.renderer, served_name(policy.digest), Ready(self.urls)
        if policy.adapter is not None:
            asked = load_adapter(self.urls, name, policy.adapter, patience=self.patience, api_key=self.api_key)
        (first, *others), speech = asked.urls, "chat" if renderer.format == "chat" else "text"
        how = {"prompt": renderer.prompt, "steering": renderer.steering, "also": tuple(others), "extra": asked.extra}
        return Endpoint(first, name, speech, api_key=self.api_key, patience=self.patience, log_probs=True, **how)


def served_name(digest: str) -> str:
    """What servers call the policy with this digest: a server that has another one refuses the name."""
    return f"{PREFIX}{digest[:12]}"


@dataclass(slots=True)
class _Seat:
    seed: int
    home: int
    """The number of the server that is asked first: it has read the conversation so far."""
    messages: list[dict[str, str]] = field(default_factory=list)
    turn: int = -1
    tokens: int = 0
    """Of the conversation up to the last reply, as the server counts."""
    requests: list[Future[dict]] = field(default_factory=list)
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
        self._path = SPEECH[endpoint.speech]
        self._requests = Requests(
            endpoint.url, *endpoint.also, at_once=seats, patience=endpoint.patience, api_key=endpoint.api_key
        )
        self._seats: dict[int, _Seat] = {}
        self._opened = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shut_down()

    def shut_down(self) -> None:
        """Cancel what is under way and close the connections."""
        for seat in list(self._seats):
            self.close(seat)
        self._requests.close()

    def open(self, seed: int) -> int:
        self._opened += 1
        self._seats[self._opened] = _Seat(seed, self._opened)
        return self._opened

    def see(self, seat: int, observation: str, admissible: tuple[str, ...]) -> bool:
        """Append an observation; False where the context might have no room for it and a reply (a token is at least
        a character)."""
        state = self._seats[seat]
        text = observation
        if self._endpoint.speech == "chat":
            text = chat_message(
                observation, not state.messages, admissible, self._endpoint.prompt, self._endpoint.steering
            )
        if state.tokens + len(text) + self._max_action_tokens > self._context:
            return False
        state.messages.append({"role": "user", "content": text})
        state.turn += 1
        return True

    def ask(self, seat: int, samples: int = 1) -> None:
        state = self._seats[seat]
        bodies = [self._body(state, sample) for sample in range(samples)]
        state.requests = [self._requests.post(self._path, body, _name(body), state.home) for body in bodies]

    def tell(self, seat: int, action: str, reason: str = "") -> None:
        said = chat_reply(action, reason) if self._endpoint.speech == "chat" else action
        self._seats[seat].messages.append({"role": "assistant", "content": said})

    def tick(self) -> list[tuple[int, tuple[Decision, ...]]]:
        """Wait for the next reply; the seats whose replies are all there.

        Raises :class:`agentprm_core.policy.requests.ServerError` where a request has failed for good, once no seat is
        complete.
        """
        while True:
            done = [seat for seat, state in self._seats.items() if _answered(state)]
            if done:
                return [(seat, self._decisions(self._seats[seat])) for seat in done]
            waiting = [request for state in self._seats.values() for request in state.requests]
            failed = [error for request in waiting if request.done() and (error := request.exception()) is not None]
            if failed:
                raise failed[0]
            assert waiting, f"none of {len(self._seats)} seats was asked: nothing to wait for"
            wait([request for request in waiting if not request.done()], return_when=FIRST_COMPLETED)

    def close(self, seat: int) -> Cost:
        state = self._seats.pop(seat)
        for request in state.requests:
            request.cancel()
        return state.cost

    def _decisions(self, state: _Seat) -> tuple[Decision, ...]:
        replies = [self._reply(request.result(), state) for request in state.requests]
        state.requests = []
        state.tokens = max(reply.prompt_tokens + reply.completion_tokens for reply in replies)
        state.cost += Cost(
            generated=sum(reply.completion_tokens for reply in replies),
            policy_read=sum(reply.prompt_tokens for reply in replies),
        )
        alike: dict[tuple[str, str], list[_Reply]] = {}
        for reply in replies:
            said = parse_reply(reply.text) if self._endpoint.speech == "chat" else ("", reply.text.strip())
            alike.setdefault(said, []).append(reply)
        decisions = [Decision(action, reason, said[0].log_prob, len(said)) for (reason, action), said in alike.items()]
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
        prompt = conversation_text([message["content"] for message in state.messages])
        return {**body, "prompt": prompt, **({"logprobs": 0} if self._endpoint.log_probs else {})}

    def _reply(self, answer: dict, state: _Seat) -> _Reply:
        try:
            choice, usage = answer["choices"][0], answer["usage"]
            text = choice["message"]["content"] if self._endpoint.speech == "chat" else choice["text"]
            log_prob = _log_prob(choice, self._endpoint.speech) if self._endpoint.log_probs else math.nan
            return _Reply(text or "", log_prob, usage["prompt_tokens"], usage["completion_tokens"])
        except (KeyError, IndexError, TypeError) as error:
            raise self._requests.misread(self._path, _name(self._body(state, 0)), answer, error) from error


def conversation_text(said: Sequence[str]) -> str:
    """Observations and actions in turn, as a policy trained here reads them: with its marks, up to where it writes or
    has written."""
    return BOS + "".join(text + (END if number % 2 else ACT) for number, text in enumerate(said))


def _log_prob(choice: dict, speech: str) -> float:
    """The sum over the reply's tokens; NaN where the server gives none."""
    given = choice.get("logprobs")
    if given is None:
        return math.nan
    return sum(token["logprob"] for token in given["content"]) if speech == "chat" else sum(given["token_logprobs"])


def _answered(state: _Seat) -> bool:
    return bool(state.requests) and all(r.done() and r.exception() is None for r in state.requests)


def _name(body: dict) -> str:
    asked = body["prompt"] if "prompt" in body else body["messages"][-1]["content"]
    return f"model {body['model']!r}, seed {body['seed']}, ending in {asked[-80:]!r}"
