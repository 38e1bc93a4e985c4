"""Decodes actions for many conversations at once: one cache slot each for its whole life, no token read twice.

A *seat* is one conversation. It sees observations, is asked for actions, and is told which action was played; every
:meth:`Sampler.tick` is one call of the model for all seats that are asked. Nobody waits for anybody: a seat whose
action is complete leaves the tick's result and joins a later one with its next observation.

Constrained decoding walks the trie of the admissible commands: only its tokens are drawn from, and tokens without an
alternative are not decoded at all but read together with the next ones. Several samples for one state are drawn from
the same logits and part only where they differ; the branches are walked one after another in the seat's own slot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache

import numpy as np
import torch

from agentprm_core.policy.models import Policy
from agentprm_core.policy.runner import CachedModel, Extension
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


@dataclass(slots=True)
class _Line:
    """A partial action: the seat's path is cut to ``keep`` tokens and ``feed`` is read, then samples are drawn."""

    keep: int
    feed: tuple[int, ...]
    node: Node | None
    samples: tuple[int, ...]
    log_prob: float
    depth: int


@dataclass(slots=True)
class _Seat:
    slot: int
    seed: int
    tokens: list[int] = field(default_factory=list)
    """The conversation so far."""
    known: int = 0
    """How many of ``tokens`` the cache holds."""
    path: list[int] = field(default_factory=list)
    """Tokens that the cache holds after those: the action being decoded."""
    opening: tuple[int, ...] = ()
    admissible: tuple[str, ...] = ()
    turn: int = -1
    lines: list[_Line] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)


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
        """``temperature`` 0 is greedy. Raises ValueError for values outside their range."""
        if temperature < 0:
            raise ValueError(f"temperature {temperature} is negative")
        if slots < 1 or max_action_tokens < 2:
            raise ValueError(f"slots {slots} must be at least 1, max_action_tokens {max_action_tokens} at least 2")
        self.seats = slots
        self.temperature, self.constrained, self.max_action_tokens = temperature, constrained, max_action_tokens
        self._renderer = policy.renderer
        self._runner = CachedModel(policy.model, slots=slots, context=context)
        self._context = context
        self._seats: dict[int, _Seat] = {}
        self._asked: dict[int, _Seat] = {}
        self._openings: dict[tuple[int, ...], list[_Seat]] = {}
        self._ready: list[tuple[int, tuple[Decision, ...]]] = []
        unknown = policy.tokenizer.unk_token_id

        @cache  # of commands there are few thousand; None for one that would be spelt like others
        def spell(command: str) -> Spelling | None:
            tokens = self._renderer.action_text(command)
            known = unknown is None or unknown not in tokens
            return ((*tokens, self._renderer.stop_token), command) if known else None

        @lru_cache(maxsize=TRIES)
        def trie(commands: tuple[str, ...]) -> Edge:
            spelt = [spelling for command in commands if (spelling := spell(command)) is not None]
            if not spelt:
                raise Unspeakable(
                    f"none of the {len(commands)} admissible commands is made of known tokens: {commands}"
                )
            return build_trie(spelt)

        self._trie = trie

    @property
    def tokens_read(self) -> int:
        """Tokens the model has read so far: the cost of the play."""
        return self._runner.tokens_read

    def open(self, seed: int) -> int:
        """A seat for a new conversation, whose samples depend on nothing but ``seed`` and what it sees."""
        slot = self._runner.cache.open()
        self._seats[slot] = _Seat(slot, seed)
        return slot

    def close(self, seat: int) -> None:
        state = self._seats.pop(seat)
        self._asked.pop(seat, None)
        if state.opening:
            self._openings[state.opening].remove(state)
            if not self._openings[state.opening]:
                del self._openings[state.opening]
        self._runner.cache.close(seat)

    def see(self, seat: int, observation: str, admissible: tuple[str, ...]) -> bool:
        """Append an observation; False, and nothing appended, where it and an action would outgrow the context."""
        state = self._seats[seat]
        seen = self._renderer.observation(observation, not state.tokens, admissible)
        ending = len(self._renderer.after_action)
        if len(state.tokens) + len(seen) + self.max_action_tokens + ending > self._context:
            return False
        if not state.tokens:
            state.opening = seen
            self._openings.setdefault(seen, []).append(state)
        state.tokens += seen
        state.admissible = admissible
        state.turn += 1
        return True

    def ask(self, seat: int, samples: int = 1) -> None:
        """Ask for an action, drawn ``samples`` times; :meth:`tick` gives it when it is whole.

        Raises :class:`agentprm_core.policy.trie.Unspeakable` where decoding is constrained to nothing.
        """
        state = self._seats[seat]
        drawn = tuple(range(samples))
        state.decisions = []
        if self.constrained:
            root = self._trie(state.admissible)
            if isinstance(root.end, Leaf):
                self._ready.append((seat, (Decision(root.end.command, "", 0.0, samples),)))
                return
            state.lines = [_Line(0, root.forced, root.end, drawn, 0.0, 0)]
        else:
            state.lines = [_Line(0, (), None, drawn, 0.0, 0)]
        self._asked[seat] = state

    def tell(self, seat: int, action: str, reason: str = "") -> None:
        """The action that was played: decided here, chosen among samples, or replayed from elsewhere."""
        state = self._seats[seat]
        played = self._renderer.action(action, reason)
        state.tokens += played
        if state.known == len(state.tokens) - len(played):
            state.known += _common(state.path, played)
        state.path = []

    def tick(self) -> list[tuple[int, tuple[Decision, ...]]]:
        """One call of the model; returns the seats whose decisions are complete, most frequent action first."""
        done, self._ready = self._ready, []
        batch = [state for state in self._asked.values() if state.known or self._share(state)]
        if not batch:
            return done
        lines = [state.lines.pop() for state in batch]
        hidden = self._runner.extend([self._extension(state, line) for state, line in zip(batch, lines)])
        picks, log_probs = self._draw(self._runner.head(hidden), batch, lines)
        begin = 0
        for state, line in zip(batch, lines):
            end = begin + len(line.samples)
            self._advance(state, line, picks[begin:end], log_probs[begin:end])
            begin = end
            if not state.lines:
                del self._asked[state.slot]
                done.append((state.slot, tuple(sorted(state.decisions, key=lambda d: -d.count))))
        return done

    def _extension(self, state: _Seat, line: _Line) -> Extension:
        """Cut the slot back to where ``line`` starts, and what is to be read from there."""
        pending = state.tokens[state.known :]
        if not pending and not line.keep and not line.feed:  # asked again at a state already read: its last token anew
            state.known -= 1
            pending = state.tokens[-1:]
        keep = line.keep if not pending else 0
        self._runner.cache.cut(state.slot, state.known + keep)
        state.path = [*state.path[:keep], *line.feed]
        state.known = len(state.tokens)
        return Extension(state.slot, [*pending, *line.feed])

    def _share(self, state: _Seat) -> bool:
        """Copy what another seat has already read of the same beginning; False to wait a tick for one that reads it."""
        best, shared = None, 0
        for other in self._openings[state.opening]:
            if other is state:
                break  # only older seats: nobody waits in a circle
            common = _common(state.tokens, other.tokens)
            if common > shared:
                best, shared = other, common
        if best is None:
            return True
        shared = min(shared, len(state.tokens) - 1)
        if best.known < shared and best.slot in self._asked:
            return False
        state.known = min(shared, best.known)
        self._runner.cache.copy(best.slot, state.slot, state.known)
        return True

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
                state.decisions.append(Decision(edge.end.command, "", log_prob, len(samples)))
            else:
                feed = (token, *edge.forced)
                state.lines.append(_Line(len(state.path), feed, edge.end, samples, log_prob, line.depth + 1))

    def _advance_freely(self, state: _Seat, line: _Line, token: int, samples: tuple[int, ...], log_prob: float) -> None:
        written = [*state.path, token]
        if token == self._renderer.stop_token or len(written) == self.max_action_tokens:
            reason, action = self._renderer.parse(written)
            state.decisions.append(Decision(action, reason, log_prob, len(samples)))
        else:
            state.lines.append(_Line(len(state.path), (token,), None, samples, log_prob, line.depth + 1))


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


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    """The length of the longest common prefix."""
    shortest = min(len(a), len(b))
    for i in range(shortest):
        if a[i] != b[i]:
            return i
    return shortest
