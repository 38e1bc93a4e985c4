"""Decodes actions for many conversations at once: one cache slot each for its whole life, no token read twice.

A *seat* is one conversation. It sees observations, is asked for actions, and is told which action was played; every
:meth:`Sampler.tick` is one call of the model for all seats that are asked. Nobody waits for anybody: a seat whose
action is complete leaves the tick's result and joins a later one with its next observation. How an action goes on
from one draw to the next is :mod:`agentprm_core.policy.decoding`'s; where several samples of one state part, the
branches are walked one after another in the seat's own slot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate

import torch

from agentprm_core.policy.conversations import Conversation, Conversations
from agentprm_core.policy.decoding import Constrained, Decision, Free, Line, Said
from agentprm_core.policy.drawing import draw
from agentprm_core.policy.models import Checkpoint

SPELT = 10_000
"""Actions whose tokens are remembered: worlds of few words, policies that repeat themselves."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one episode cost, in tokens."""

    generated: int = 0
    """Of all sampled actions, with their end marks: what a sampler without tries or merging would have decoded."""
    policy_read: int = 0
    """That the policy's model read."""
    prm_read: int = 0
    """That the PRM's model read."""

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.generated + other.generated,
            self.policy_read + other.policy_read,
            self.prm_read + other.prm_read,
        )


@dataclass(slots=True)
class _Seat:
    talk: Conversation
    seed: int
    turn: int = -1
    admissible: tuple[str, ...] = ()
    lines: list[Line] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    generated: int = 0


class Sampler:
    """Plays a policy in up to ``slots`` conversations at once."""

    def __init__(
        self,
        policy: Checkpoint,
        *,
        slots: int,
        context: int,
        temperature: float,
        constrained: bool,
        max_action_tokens: int,
    ) -> None:
        """``temperature`` 0 is greedy. ``max_action_tokens`` bounds free decoding (an action cut off there is played as
        it stands) and the free text of templates. Raises ValueError for values outside their range."""
        if temperature < 0:
            raise ValueError(f"temperature {temperature} is negative")
        if slots < 1 or max_action_tokens < 2:
            raise ValueError(f"slots {slots} must be at least 1, max_action_tokens {max_action_tokens} at least 2")
        self.seats, self.context = slots, context
        self.temperature, self.constrained, self.max_action_tokens = temperature, constrained, max_action_tokens
        self._renderer = policy.renderer
        self._talks = Conversations(policy, slots=slots, context=context)
        self._seats: dict[int, _Seat] = {}
        self._asked: dict[int, _Seat] = {}
        self._ready: list[tuple[int, tuple[Decision, ...]]] = []
        self._decoding = Constrained(policy, max_action_tokens) if constrained else Free(policy, max_action_tokens)
        self._tokens_of = lru_cache(maxsize=SPELT)(lambda action, reason: len(policy.renderer.action(action, reason)))

    @property
    def tokens_read(self) -> int:
        """Tokens the model has read so far."""
        return self._talks.runner.tokens_read

    def open(self, seed: int) -> int:
        """A seat for a new conversation, whose samples depend on nothing but ``seed`` and what it sees."""
        talk = self._talks.open()
        self._seats[talk.slot] = _Seat(talk, seed)
        return talk.slot

    def fork(self, seat: int, seed: int) -> int:
        """A second seat with the same past, drawing by its own ``seed`` from here."""
        state = self._seats[seat]
        talk = self._talks.fork(state.talk)
        self._seats[talk.slot] = _Seat(talk, seed, state.turn, state.admissible)
        return talk.slot

    def close(self, seat: int) -> Cost:
        """Give the seat back; returns what was spent on it."""
        state = self._seats.pop(seat)
        self._asked.pop(seat, None)
        self._talks.close(state.talk)
        if not self._seats:  # what is played next is then played as by a new sampler, also where a killed run goes on
            self._decoding.forget()
        return Cost(generated=state.generated, policy_read=state.talk.read)

    def see(self, seat: int, observation: str, admissible: tuple[str, ...]) -> bool:
        """Append an observation; False, and nothing appended, where it and an action would outgrow the context.

        Raises :class:`agentprm_core.policy.trie.Unspeakable` where decoding is constrained to nothing.
        """
        state = self._seats[seat]
        if not self._talks.see(state.talk, observation, admissible, self._decoding.longest(admissible)):
            return False
        state.admissible = admissible
        state.turn += 1
        return True

    def ask(self, seat: int, samples: int = 1) -> None:
        """Ask for an action, drawn ``samples`` times; :meth:`tick` gives it when it is whole."""
        state = self._seats[seat]
        first = self._decoding.start(state.admissible, samples)
        state.decisions = []
        if isinstance(first, Said):
            self._decide(state, first.decision)
            self._ready.append((seat, (first.decision,)))
            return
        state.lines = [first]
        self._asked[seat] = state

    def tell(self, seat: int, action: str, reason: str = "") -> None:
        """The action that was played: decided here, chosen among samples, or replayed from elsewhere."""
        self._talks.tell(self._seats[seat].talk, action, reason)

    def tick(self) -> list[tuple[int, tuple[Decision, ...]]]:
        """One call of the model; returns the seats whose decisions are complete, most frequent action first."""
        done, self._ready = self._ready, []
        asked = list(self._asked.values())
        reading = {state.talk for state in asked}
        batch = [state for state in asked if state.talk.known or self._talks.share(state.talk, reading)]
        if not batch:
            return done
        lines = [state.lines.pop() for state in batch]
        extensions = [
            self._talks.extension(state.talk, line.keep, line.feed, reads=line.guessed + 1)
            for state, line in zip(batch, lines)
        ]
        runner = self._talks.runner
        hidden = runner.extend(extensions)
        if len(hidden) > sum(len(line.places) for line in lines):
            hidden = hidden[_drawn(lines).to(hidden.device)]
        tokens, log_probs = self._draw(runner.head(hidden), batch, lines)
        end = 0
        for state, line in zip(batch, lines):
            here = slice(end, end := end + len(line.places) * len(line.samples))
            progress = line.way.advance(line, state.talk.path, zip(tokens[here], log_probs[here]))
            state.lines += progress.lines
            for said in progress.said:
                self._decide(state, said.decision)
            if not state.lines:
                del self._asked[state.talk.slot]
                done.append((state.talk.slot, tuple(sorted(state.decisions, key=lambda d: -d.count))))
        return done

    def _draw(self, logits: torch.Tensor, batch: list[_Seat], lines: list[Line]) -> tuple[list[int], list[float]]:
        """The token drawn and its log-probability, for every line, place read and sample."""
        allowed, keys, samples = [], [], []
        for state, line in zip(batch, lines):
            allowed += line.way.allowed(line)
            for depth in range(line.depth, line.depth + len(line.places)):
                keys.append((state.seed, state.turn, depth))
                samples.append(line.samples)
        return draw(logits, allowed, keys, samples, self.temperature)

    def _decide(self, state: _Seat, decision: Decision) -> None:
        state.decisions.append(decision)
        state.generated += decision.count * self._tokens_of(decision.action, decision.reason)


def _drawn(lines: Sequence[Line]) -> torch.Tensor:
    """Of the places read, which are a line's guess and the token before it, the numbers of those where is drawn."""
    ends = accumulate(line.guessed + 1 for line in lines)
    return torch.tensor([end - 1 - back for end, line in zip(ends, lines) for back in line.places])
