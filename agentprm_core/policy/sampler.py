"""Decodes actions for many conversations at once: one cache slot each for its whole life, no token read twice.

A *seat* is one conversation. It sees observations, is asked for actions, and is told which action was played; every
:meth:`Sampler.tick` is one call of the model for all seats that are asked. Nobody waits for anybody: a seat whose
action is complete leaves the tick's result and joins a later one with its next observation.

Constrained decoding walks the trie of the admissible commands: only its tokens are drawn from, and tokens without an
alternative are not decoded at all but read together with the next ones. Several samples for one state are drawn from
the same logits and part only where they differ; the branches are walked one after another in the seat's own slot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache

import numpy as np
import torch

from agentprm_core.policy.conversations import Conversation, Conversations
from agentprm_core.policy.models import Policy
from agentprm_core.policy.trie import Edge, Leaf, Node, Spelling, Unspeakable, build_trie

TRIES = 20_000
"""Tries kept: the same lists of commands come up again and again in the episodes of one game."""


@dataclass(frozen=True, slots=True)
class Decision:
    """An action for one state."""

    action: str
    reason: str
    log_prob: float
    """Log-probability at temperature 1 of the tokens decided, each among the tokens that decoding allowed there:
    renormalised over the admissible commands when constrained, over the vocabulary when free."""
    count: int = 1
    """How many of the samples it stands for."""


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
class _Line:
    """A partial action: the path is cut to ``keep`` tokens and ``feed`` is read, then samples are drawn."""

    keep: int
    feed: tuple[int, ...]
    node: Node | None
    samples: tuple[int, ...]
    log_prob: float
    depth: int


@dataclass(slots=True)
class _Seat:
    talk: Conversation
    seed: int
    turn: int = -1
    admissible: tuple[str, ...] = ()
    lines: list[_Line] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    generated: int = 0


class Sampler:
    """Plays a policy in up to ``slots`` conversations at once."""

    def __init__(
        self,
        policy: Policy,
        *,
        slots: int,
        context: int,
        temperature: float,
        constrained: bool,
        max_action_tokens: int,
    ) -> None:
        """``temperature`` 0 is greedy. ``max_action_tokens`` bounds free decoding: an action cut off there is played
        as it stands. Raises ValueError for values outside their range."""
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
        self._trie = _tries(policy)

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
        return Cost(generated=state.generated, policy_read=state.talk.read)

    def see(self, seat: int, observation: str, admissible: tuple[str, ...]) -> bool:
        """Append an observation; False, and nothing appended, where it and an action would outgrow the context.

        Raises :class:`agentprm_core.policy.trie.Unspeakable` where decoding is constrained to nothing.
        """
        state = self._seats[seat]
        reserve = self._trie(admissible)[1] if self.constrained else self.max_action_tokens
        if not self._talks.see(state.talk, observation, admissible, reserve):
            return False
        state.admissible = admissible
        state.turn += 1
        return True

    def ask(self, seat: int, samples: int = 1) -> None:
        """Ask for an action, drawn ``samples`` times; :meth:`tick` gives it when it is whole."""
        state = self._seats[seat]
        state.decisions = []
        line = _Line(0, (), None, tuple(range(samples)), 0.0, 0)
        if self.constrained:
            root = self._trie(state.admissible)[0]
            if isinstance(root.end, Leaf):
                self._decide(state, root.end.command, "", 0.0, samples)
                self._ready.append((seat, tuple(state.decisions)))
                return
            line.feed, line.node = root.forced, root.end
        state.lines = [line]
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
        extensions = [self._talks.extension(state.talk, line.keep, line.feed) for state, line in zip(batch, lines)]
        runner = self._talks.runner
        picks, log_probs = self._draw(runner.head(runner.extend(extensions)), batch, lines)
        begin = 0
        for state, line in zip(batch, lines):
            end = begin + len(line.samples)
            self._advance(state, line, picks[begin:end], log_probs[begin:end])
            begin = end
            if not state.lines:
                del self._asked[state.talk.slot]
                done.append((state.talk.slot, tuple(sorted(state.decisions, key=lambda d: -d.count))))
        return done

    def _draw(self, logits: torch.Tensor, batch: list[_Seat], lines: list[_Line]) -> tuple[list[int], list[float]]:
        """For every sample of every line the index drawn among what is allowed, and its log-probability."""
        if self.constrained:
            logits = _gather([line.node.tokens for line in lines], logits)
        rows = [i for i, line in enumerate(lines) for _ in line.samples]
        if len(rows) > len(lines):
            logits = logits[rows]
        log_probs = logits.log_softmax(-1)
        if self.temperature == 0:
            picks = logits.argmax(-1)
        else:
            keys = [(s.seed, s.turn, line.depth, k) for s, line in zip(batch, lines) for k in line.samples]
            picks = _inverse_cdf(logits / self.temperature, torch.from_numpy(uniforms(keys)).to(logits.device))
        return picks.tolist(), log_probs.gather(1, picks[:, None])[:, 0].tolist()

    def _advance(self, state: _Seat, line: _Line, picks: Sequence[int], log_probs: Sequence[float]) -> None:
        """Follow each distinct token drawn to the next decision, or to the end of the action."""
        groups: dict[int, list[int]] = {}
        for i, pick in enumerate(picks):
            groups.setdefault(pick, []).append(i)
        for pick, members in groups.items():
            samples = tuple(line.samples[i] for i in members)
            log_prob = line.log_prob + log_probs[members[0]]
            if line.node is None:
                self._advance_freely(state, line, pick, samples, log_prob)
                continue
            token = line.node.tokens[pick]
            edge = line.node.edge(token)
            if isinstance(edge.end, Leaf):
                self._decide(state, edge.end.command, "", log_prob, len(samples))
            else:
                feed = (token, *edge.forced)
                state.lines.append(_Line(len(state.talk.path), feed, edge.end, samples, log_prob, line.depth + 1))

    def _advance_freely(self, state: _Seat, line: _Line, token: int, samples: tuple[int, ...], log_prob: float) -> None:
        written = [*state.talk.path, token]
        if token == self._renderer.stop_token or len(written) == self.max_action_tokens:
            reason, action = self._renderer.parse(written)
            self._decide(state, action, reason, log_prob, len(samples))
        else:
            state.lines.append(_Line(len(state.talk.path), (token,), None, samples, log_prob, line.depth + 1))

    def _decide(self, state: _Seat, action: str, reason: str, log_prob: float, count: int) -> None:
        state.generated += count * len(self._renderer.action(action, reason))
        state.decisions.append(Decision(action, reason, log_prob, count))


def _tries(policy: Policy) -> Callable[[tuple[str, ...]], tuple[Edge, int]]:
    """commands → their trie, and the tokens of the longest of them without its end."""
    renderer, unknown = policy.renderer, policy.tokenizer.unk_token_id

    @cache  # of commands there are few thousand; None for one with a token that stands for many words
    def spell(command: str) -> Spelling | None:
        tokens = renderer.action_text(command)
        known = unknown is None or unknown not in tokens
        return ((*tokens, renderer.stop_token), command) if known else None

    @lru_cache(maxsize=TRIES)
    def trie(commands: tuple[str, ...]) -> tuple[Edge, int]:
        spelt = [spelling for command in commands if (spelling := spell(command)) is not None]
        if not spelt:
            raise Unspeakable(f"none of the {len(commands)} admissible commands is made of known tokens: {commands}")
        return build_trie(spelt), max(len(tokens) for tokens, _ in spelt) - 1

    return trie


def uniforms(keys: Sequence[tuple[int, ...]]) -> np.ndarray:
    """One number in [0, 1) a key, a hash of its integers alone (SplitMix64, Steele et al. 2014): no stream to share."""
    columns = np.array(keys, dtype=np.int64).T.astype(np.uint64)
    state = np.zeros(columns.shape[1], dtype=np.uint64)
    for column in columns:
        state = (state ^ column) + np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state ^= state >> np.uint64(31)
    return (state >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _gather(tokens: Sequence[tuple[int, ...]], logits: torch.Tensor) -> torch.Tensor:
    """The logits of each row's allowed tokens, padded with −inf."""
    counts = np.array([len(t) for t in tokens])
    present = np.arange(counts.max()) < counts[:, None]
    padded = np.zeros(present.shape, dtype=np.int64)
    padded[present] = np.concatenate(tokens)
    allowed = torch.from_numpy(padded).to(logits.device)
    missing = torch.from_numpy(~present).to(logits.device)
    return logits.gather(1, allowed).masked_fill_(missing, -torch.inf)


def _inverse_cdf(logits: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """The first index at which the cumulated probability exceeds ``uniform`` (float64: no last entry out of reach)."""
    cdf = logits.double().softmax(-1).cumsum(-1)
    return (cdf <= uniform[:, None] * cdf[:, -1:]).sum(-1).clamp_(max=logits.shape[-1] - 1)
