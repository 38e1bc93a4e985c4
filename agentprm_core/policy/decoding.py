"""Where an action goes from a draw to the next: constrained to the admissible commands, or free.

Both walk the trie of the admissible commands. Constrained decoding draws from its tokens only, and reads tokens that
have no alternative without drawing them. Free decoding draws from the whole vocabulary and uses the trie to guess:
tokens that must follow in an admissible command are read along with the one before, then drawn all the same, and the
first that was drawn otherwise ends the guess. What is said does not change by it, only the number of model calls.

Several samples of one state are drawn from the same logits and part only where they differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch

from agentprm_core.policy.models import Policy
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
    """Where ``feed`` leads in the trie; None off it."""
    samples: tuple[int, ...]
    log_prob: float
    depth: int
    """Draws before these."""
    guessed: int = 0
    """How many of the last tokens of ``feed`` are guesses: drawn as well, one after the other."""


@dataclass(slots=True)
class Progress:
    """What came of a line's draws."""

    lines: list[Line] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)


class Constrained:
    """Only admissible commands are said; nothing is drawn where one token may follow."""

    def __init__(self, policy: Policy) -> None:
        self._tries = CommandTries(policy)

    def longest(self, admissible: tuple[str, ...]) -> int:
        """Tokens an action may have, its end not counted. Raises :class:`Unspeakable` where none can be said."""
        return self._tries.speakable(admissible).longest

    def start(self, admissible: tuple[str, ...], samples: int) -> Line | Decision:
        """The first line, or the decision where there is only one."""
        root = self._tries.speakable(admissible).root
        if isinstance(root.end, Leaf):
            return Decision(root.end.command, "", 0.0, samples)
        return Line(0, root.forced, root.end, tuple(range(samples)), 0.0, 0)

    def allowed(self, line: Line) -> np.ndarray:
        """The tokens to draw from; draws are indices into them."""
        return line.end.index

    def advance(self, line: Line, path: Sequence[int], draws: Iterator[tuple[int, float]]) -> Progress:
        """``draws`` are (index, log-probability) of each sample; ``path`` is what the cache holds of the action."""
        progress = Progress()
        for pick, members, log_prob in _groups(line.samples, draws):
            token = line.end.tokens[pick]
            edge, total = line.end.edge(token), line.log_prob + log_prob
            if isinstance(edge.end, Leaf):
                progress.decisions.append(Decision(edge.end.command, "", total, len(members)))
            else:
                feed = (token, *edge.forced)
                progress.lines.append(Line(len(path), feed, edge.end, members, total, line.depth + 1))
        return progress


class Free:
    """Anything is said, up to ``max_action_tokens``: an action cut off there stands as it is."""

    def __init__(self, policy: Policy, max_action_tokens: int) -> None:
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
        return Line(keep, (*drawn, *guess), end, samples, log_prob, depth, len(guess))


def _groups(samples: Sequence[int], draws: Iterator[tuple[int, float]]) -> list[tuple[int, tuple[int, ...], float]]:
    """(what was drawn, the samples that drew it, its log-probability), in order of first appearance."""
    members: dict[tuple[int, float], list[int]] = {}  # samples that drew alike have the same log-probability
    for sample, draw in zip(samples, draws):
        if draw in members:
            members[draw].append(sample)
        else:
            members[draw] = [sample]
    return [(pick, tuple(drew), log_prob) for (pick, log_prob), drew in members.items()]


def _follow(end: Node | Leaf | None, token: int) -> Edge | None:
    return end.edge(token) if isinstance(end, Node) and token in end.tokens else None


def allowed_logits(tokens: Sequence[Sequence[int] | np.ndarray], logits_RV: torch.Tensor) -> torch.Tensor:
    """The logits of each row's allowed tokens [R, C], padded with −inf to the row that has most (C)."""
    counts = np.array([len(t) for t in tokens])
    present_RC = np.arange(counts.max()) < counts[:, None]
    index_RC = np.zeros(present_RC.shape, dtype=np.int64)
    index_RC[present_RC] = np.concatenate(tokens)
    allowed_RC = logits_RV.gather(1, torch.from_numpy(index_RC).to(logits_RV.device))
    return allowed_RC.masked_fill_(torch.from_numpy(~present_RC).to(logits_RV.device), -torch.inf)
