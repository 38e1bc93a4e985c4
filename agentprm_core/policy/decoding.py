"""Where an action goes from a draw to the next: constrained to the admissible commands, or free.

Both walk the trie of the admissible commands, and guess: tokens that may well follow are read along with the one
before, what is drawn otherwise ends the guess, and what is said does not change by it, only the number of model calls.
Constrained decoding draws from the trie's tokens only, reads tokens that have no alternative without drawing them, and
guesses the token under which most commands lie (``go to``). Free decoding draws from the whole vocabulary, and guesses
what must follow in an admissible command.

Several samples of one state are drawn from the same logits and part only where they differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch

from agentprm_core.policy.models import Checkpoint
from agentprm_core.policy.trie import CommandTries, Edge, Leaf, Node


class Decision(NamedTuple):  # a search makes tens of thousands, and a frozen dataclass is slower to make
    """An action for one state."""

    action: str
    reason: str
    log_prob: float
    """Log-probability at temperature 1 of the tokens decided, each among the tokens that decoding allowed there:
    renormalised over the admissible commands when constrained, over the vocabulary when free."""
    count: int = 1
    """How many of the samples it stands for."""


@dataclass(slots=True)
class Line:
    """A partial action: the path is cut to ``keep`` tokens, ``feed`` is read, and ``samples`` are drawn after it."""

    keep: int
    feed: tuple[int, ...]
    end: Node | Leaf | None
    """Where ``feed`` leads in the trie, what :class:`Constrained` guesses of it left out; None off it."""
    samples: tuple[int, ...]
    log_prob: float
    depth: int
    """Draws before these."""
    places: tuple[int, ...] = (0,)
    """Where is drawn: after all but so many of the last tokens of ``feed``. What follows the first is guessed."""

    @property
    def guessed(self) -> int:
        """How many of the last tokens of ``feed`` are guesses."""
        return self.places[0]


@dataclass(slots=True)
class Progress:
    """What came of a line's draws."""

    lines: list[Line] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)


class Constrained:
    """Only admissible commands are said; nothing is drawn where one token may follow."""

    def __init__(self, policy: Checkpoint) -> None:
        self._tries = CommandTries(policy)

    def longest(self, admissible: tuple[str, ...]) -> int:
        """Tokens an action may have, its end not counted. Raises :class:`Unspeakable` where none can be said."""
        return self._tries.speakable(admissible).longest

    def start(self, admissible: tuple[str, ...], samples: int) -> Line | Decision:
        """The first line, or the decision where there is only one."""
        root = self._tries.speakable(admissible).root
        if isinstance(root.end, Leaf):
            return Decision(root.end.command, "", 0.0, samples)
        return _guessing(0, root.forced, root.end, tuple(range(samples)), 0.0, 0)

    def allowed(self, line: Line) -> list[tuple[int, ...]]:
        """The tokens to draw from at each of its places; draws are indices into them."""
        if not line.guessed:
            return [line.end.tokens]
        _, edge = line.end.likely
        return [line.end.tokens, edge.end.tokens]

    def advance(self, line: Line, path: Sequence[int], draws: Iterator[tuple[int, float]]) -> Progress:
        """``draws`` are (index, log-probability) of each sample at the first place, then of each at the guess;
        ``path`` is what the cache holds of the action."""
        progress = Progress()
        if not line.guessed:
            _go_on(progress, line.end, len(path), _groups(line.samples, draws), line.log_prob, line.depth)
            return progress
        guess, edge = line.end.likely
        others, agreed = [], []
        for group in _groups(line.samples, draws):
            (agreed if line.end.tokens[group[0]] == guess else others).append(group)
        beyond = dict(zip(line.samples, draws))
        _go_on(progress, line.end, len(path) - line.guessed, others, line.log_prob, line.depth)
        for _, members, log_prob in agreed:  # last: lines are walked from the last on, and the cache holds the guess
            drew = _groups(members, iter([beyond[sample] for sample in members]))
            _go_on(progress, edge.end, len(path), drew, line.log_prob + log_prob, line.depth + 1)
        return progress


class Free:
    """Anything is said, up to ``max_action_tokens``: an action cut off there stands as it is."""

    def __init__(self, policy: Checkpoint, max_action_tokens: int) -> None:
        self._tries, self._renderer, self._most = CommandTries(policy), policy.renderer, max_action_tokens

    def longest(self, admissible: tuple[str, ...]) -> int:
        return self._most

    def start(self, admissible: tuple[str, ...], samples: int) -> Line:
        trie = self._tries.find(admissible)
        return self._line((), 0, None if trie is None else trie.root, tuple(range(samples)), 0.0, 0)

    def allowed(self, line: Line) -> None:
        """The whole vocabulary: draws are tokens."""
        return None

    def advance(self, line: Line, path: Sequence[int], draws: Iterator[tuple[int, float]]) -> Progress:
        """``draws`` are (token, log-probability) of each sample at the last token that is certain, then of each at
        every guess."""
        progress, going, total = Progress(), line.samples, line.log_prob
        for guess in range(line.guessed + 1):
            at = len(path) - line.guessed + guess
            drawn = dict(zip(line.samples, draws))
            agreed: tuple[int, ...] = ()
            for token, members, log_prob in _groups(going, iter([drawn[sample] for sample in going])):
                sum_ = total + log_prob
                if token == self._renderer.stop_token or at + 1 == self._most:
                    reason, action = self._renderer.parse([*path[:at], token])
                    progress.decisions.append(Decision(action, reason, sum_, len(members)))
                elif guess < line.guessed and token == path[at]:
                    agreed, agreed_total = members, sum_
                else:
                    edge = _follow(line.end if guess == line.guessed else None, token)
                    progress.lines.append(self._line((token,), at, edge, members, sum_, line.depth + guess + 1))
            if not agreed:
                break
            going, total = agreed, agreed_total
        return progress

    def _line(
        self,
        drawn: tuple[int, ...],
        keep: int,
        edge: Edge | None,
        samples: tuple[int, ...],
        log_prob: float,
        depth: int,
    ) -> Line:
        """``drawn`` and as much of what must follow it as an action may have; an end mark is not worth reading."""
        if edge is None:
            return Line(keep, drawn, None, samples, log_prob, depth)
        whole = edge.forced[:-1] if isinstance(edge.end, Leaf) else edge.forced
        guess = whole[: self._most - keep - len(drawn) - 1]
        end = edge.end if len(guess) == len(whole) else None
        return Line(keep, (*drawn, *guess), end, samples, log_prob, depth, tuple(range(len(guess), -1, -1)))


Group = tuple[int, tuple[int, ...], float]
"""What was drawn, the samples that drew it, and its log-probability."""


def _go_on(progress: Progress, node: Node, keep: int, groups: Sequence[Group], log_prob: float, depth: int) -> None:
    """What comes of draws at ``node``, which are indices of its tokens, after ``keep`` tokens of the action."""
    for pick, members, log_prob_of_pick in groups:
        token = node.tokens[pick]
        edge, total = node.edge(token), log_prob + log_prob_of_pick
        if isinstance(edge.end, Leaf):
            progress.decisions.append(Decision(edge.end.command, "", total, len(members)))
        else:
            progress.lines.append(_guessing(keep, (token, *edge.forced), edge.end, members, total, depth + 1))


def _guessing(
    keep: int, feed: tuple[int, ...], node: Node, samples: tuple[int, ...], log_prob: float, depth: int
) -> Line:
    """The line that reads ``feed``, which leads to ``node``, and what is likely to follow."""
    if node.likely is None:
        return Line(keep, feed, node, samples, log_prob, depth)
    token, edge = node.likely
    return Line(keep, (*feed, token, *edge.forced), node, samples, log_prob, depth, (1 + len(edge.forced), 0))


def _groups(samples: Sequence[int], draws: Iterator[tuple[int, float]]) -> list[Group]:
    """In order of first appearance."""
    if len(samples) == 1:
        pick, log_prob = next(draws)
        return [(pick, tuple(samples), log_prob)]
    members: dict[tuple[int, float], list[int]] = {}  # samples that drew alike have the same log-probability
    for sample, draw in zip(samples, draws):
        if draw in members:
            members[draw].append(sample)
        else:
            members[draw] = [sample]
    return [(pick, tuple(drew), log_prob) for (pick, log_prob), drew in members.items()]


def _follow(end: Node | Leaf | None, token: int) -> Edge | None:
    return end.edge(token) if isinstance(end, Node) and token in end.tokens else None


def allowed_logits(tokens: Sequence[Sequence[int]], logits_RV: torch.Tensor) -> torch.Tensor:
    """The logits of each row's allowed tokens [R, C], padded with −inf to the row that has most (C)."""
    counts = np.array([len(t) for t in tokens])
    present_RC = np.arange(counts.max()) < counts[:, None]
    index_RC = np.zeros(present_RC.shape, dtype=np.int64)
    index_RC[present_RC] = np.fromiter(chain.from_iterable(tokens), np.int64, int(counts.sum()))
    allowed_RC = logits_RV.gather(1, torch.from_numpy(index_RC).to(logits_RV.device))
    return allowed_RC.masked_fill_(torch.from_numpy(~present_RC).to(logits_RV.device), -torch.inf)
