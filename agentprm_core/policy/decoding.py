"""Where an action goes from a draw to the next: constrained to the admissible commands, or free.

Both walk the trie of the admissible commands, and guess: tokens that may well follow are read along with the one
before, what is drawn otherwise ends the guess, and what is said does not change by it, only the number of model calls.
Constrained decoding draws from the trie's tokens only, reads tokens that have no alternative without drawing them, and
guesses the token under which most commands lie (``go to``). Free decoding draws from the whole vocabulary, and guesses
what must follow in an admissible command, or, where it is in none, what most earlier replies went on with
(:mod:`agentprm_core.policy.replies`).

Where a world takes any text (no command is listed) constrained decoding is free decoding. In a template (``search[…]``)
free text is drawn from the whole vocabulary but for marks, until a token that begins what follows in the template, or
until the action has ``max_action_tokens``; then the rest follows.

Several samples of one state are drawn from the same logits and part only where they differ. What plays
(:mod:`agentprm_core.policy.sampler`) and what proposes (:mod:`agentprm_core.improve.proposals`) walk by the same lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from agentprm_core.policy.drawing import EVERYTHING, AllBut, Allowed
from agentprm_core.policy.models import Checkpoint
from agentprm_core.policy.replies import Replies
from agentprm_core.policy.trie import CommandTries, Edge, Leaf, Node, Text
from agentprm_core.worlds.base import OPEN

E = TypeVar("E")
"""Where a line leads in the trie."""


class Decision(NamedTuple):  # a search makes tens of thousands, and a frozen dataclass is slower to make
    """An action for one state."""

    action: str
    reason: str
    log_prob: float
    """Log-probability at temperature 1 of the tokens decided, each among the tokens that decoding allowed there:
    renormalised over the admissible commands when constrained, over the vocabulary when free."""
    count: int = 1  # pyright: ignore[reportIncompatibleMethodOverride]: nobody counts in it
    """How many of the samples it stands for."""


class Said(NamedTuple):
    """A whole action of some samples of a line."""

    decision: Decision
    samples: tuple[int, ...]
    keep: int
    rest: tuple[int, ...]
    """Its tokens are the first ``keep`` of the line's and these, up to and with the stop token if it ended."""


@dataclass(slots=True)
class Line(Generic[E]):
    """A partial action: the path is cut to ``keep`` tokens, ``feed`` is read, and ``samples`` are drawn after it."""

    way: Constrained | Free
    """Who knows how it goes on."""
    keep: int
    feed: tuple[int, ...]
    end: E
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
    said: list[Said] = field(default_factory=list)


class Constrained:
    """Only admissible commands are said; nothing is drawn where one token may follow."""

    def __init__(self, policy: Checkpoint, max_action_tokens: int, guessing: bool = True) -> None:
        """``guessing``: whether lines read ahead, for those who can take back what was read."""
        self._tries, self._renderer, self._most = CommandTries(policy), policy.renderer, max_action_tokens
        self._free, self._guessing = Free(policy, max_action_tokens, guessing), guessing

    def longest(self, admissible: tuple[str, ...]) -> int:
        """Tokens an action may have, its end not counted. Raises :class:`Unspeakable` where none can be said."""
        if not admissible:
            return self._most
        trie = self._tries.speakable(admissible)
        return trie.longest + self._most if trie.opens else trie.longest

    def forget(self) -> None:
        """Guess as if nothing had been said so far."""
        self._free.forget()

    def start(self, admissible: tuple[str, ...], samples: int) -> Line | Said:
        """The first line, or the action where there is only one."""
        if not admissible:
            return self._free.start(admissible, samples)
        root, numbers = self._tries.speakable(admissible).root, tuple(range(samples))
        if isinstance(root.end, Leaf):
            return Said(Decision(root.end.command, "", 0.0, samples), numbers, 0, root.forced)
        return self._line(0, root.forced, root.end, numbers, 0.0, 0)

    def allowed(self, line: Line[Any]) -> list[Allowed]:
        """What may be drawn at each of its places."""
        length = line.keep + len(line.feed)
        if not line.guessed:
            return [self._after(line.end, length)]
        _, edge = line.end.likely
        return [self._after(line.end, length - line.guessed), self._after(edge.end, length)]

    def along(self, admissible: tuple[str, ...], tokens: Sequence[int]) -> Sequence[Allowed] | None:
        """Among what each token of an action was drawn, its stop token the last; a token without an alternative stands
        alone. None for an action that is not among ``admissible``."""
        if not admissible:
            return [EVERYTHING] * len(tokens)
        trie = self._tries.find(admissible)
        if trie is None:
            return None
        edge, found = trie.root, list[Allowed]()
        while True:
            found += [(token,) for token in edge.forced]
            if isinstance(edge.end, Leaf) or len(found) >= len(tokens):
                break
            token, allowed = tokens[len(found)], self._after(edge.end, len(found))
            if not _may(allowed, token):
                return None
            edge = edge.end.edge(token)
            found.append(allowed)
        return found if len(found) == len(tokens) and all(map(_may, found, tokens)) else None

    def advance(self, line: Line[Any], path: Sequence[int], draws: Iterator[tuple[int, float]]) -> Progress:
        """``draws`` are (token, log-probability) of each sample at the first place, then of each at the guess;
        ``path`` is what was read of the action."""
        progress = Progress()
        if not line.guessed:
            groups = _groups(line.samples, draws)
            self._go_on(progress, line.end, path, len(path), groups, line.log_prob, line.depth)
            return progress
        guess, edge = line.end.likely
        others, agreed = [], []
        for group in _groups(line.samples, draws):
            (agreed if group[0] == guess else others).append(group)
        beyond = dict(zip(line.samples, draws))
        self._go_on(progress, line.end, path, len(path) - line.guessed, others, line.log_prob, line.depth)
        for _, members, log_prob in agreed:  # last: lines are walked from the last on, and the cache holds the guess
            drew = _groups(members, iter([beyond[sample] for sample in members]))
            self._go_on(progress, edge.end, path, len(path), drew, line.log_prob + log_prob, line.depth + 1)
        return progress

    def _after(self, end: Node | Text, length: int) -> Allowed:
        """What may come after ``length`` tokens of an action that lead to ``end``."""
        if isinstance(end, Text):
            closing = end.closing.tokens
            return closing if length >= self._most else AllBut(tuple(self._renderer.marks.difference(closing)))
        return AllBut(tuple(self._renderer.marks.difference(end.tokens))) if end.opens else end.tokens

    def _go_on(
        self,
        progress: Progress,
        node: Node | Text,
        path: Sequence[int],
        keep: int,
        groups: Sequence[Group],
        log_prob: float,
        depth: int,
    ) -> None:
        """What comes of draws at ``node`` after the first ``keep`` tokens of the action."""
        for token, members, log_prob_of_token in groups:
            edge, total = node.edge(token), log_prob + log_prob_of_token
            feed = (token, *edge.forced)
            if isinstance(edge.end, Leaf):
                action = edge.end.command
                if OPEN in action:
                    action = self._tries.filled(action, [*path[:keep], *feed])
                progress.said.append(Said(Decision(action, "", total, len(members)), members, keep, feed))
            else:
                progress.lines.append(self._line(keep, feed, edge.end, members, total, depth + 1))

    def _line(
        self, keep: int, feed: tuple[int, ...], end: Node | Text, samples: tuple[int, ...], log_prob: float, depth: int
    ) -> Line:
        """The line that reads ``feed``, which leads to ``end``, and what is likely to follow."""
        if not self._guessing or isinstance(end, Text) or end.likely is None:
            return Line(self, keep, feed, end, samples, log_prob, depth)
        token, edge = end.likely
        ahead = (token, *edge.forced)
        return Line(self, keep, (*feed, *ahead), end, samples, log_prob, depth, (len(ahead), 0))


class Free:
    """Anything is said, up to ``max_action_tokens``: an action cut off there stands as it is."""

    def __init__(self, policy: Checkpoint, max_action_tokens: int, guessing: bool = True) -> None:
        """``guessing``: as :class:`Constrained`."""
        self._tries, self._renderer, self._most = CommandTries(policy), policy.renderer, max_action_tokens
        self._guessing = guessing
        self.forget()

    def forget(self) -> None:
        """Guess as if nothing had been said so far."""
        self._replies = Replies(self._renderer.stop_token)

    def longest(self, admissible: tuple[str, ...]) -> int:
        return self._most

    def start(self, admissible: tuple[str, ...], samples: int) -> Line:
        trie = self._tries.find(admissible) if self._guessing else None
        return self._line((), (), None if trie is None else trie.root, tuple(range(samples)), 0.0, 0)

    def allowed(self, line: Line) -> list[Allowed]:
        """The whole vocabulary, at each of its places."""
        return [EVERYTHING] * len(line.places)

    def advance(self, line: Line, path: Sequence[int], draws: Iterator[tuple[int, float]]) -> Progress:
        """``draws`` are (token, log-probability) of each sample at the last token that is certain, then of each at
        every guess."""
        progress, going, total = Progress(), line.samples, line.log_prob
        for guess in range(line.guessed + 1):
            at = len(path) - line.guessed + guess
            drawn = dict(zip(line.samples, draws))
            agreed: tuple[int, ...] = ()
            agreed_total = total
            for token, members, log_prob in _groups(going, iter([drawn[sample] for sample in going])):
                sum_ = total + log_prob
                if token == self._renderer.stop_token or at + 1 == self._most:
                    whole = [*path[:at], token]
                    reason, action = self._renderer.parse(whole)
                    if self._guessing:
                        self._replies.remember(whole, len(members))
                    progress.said.append(Said(Decision(action, reason, sum_, len(members)), members, at, (token,)))
                elif guess < line.guessed and token == path[at]:
                    agreed, agreed_total = members, sum_
                else:
                    edge = self._follow(line.end if guess == line.guessed else None, token)
                    progress.lines.append(self._line(path[:at], (token,), edge, members, sum_, line.depth + guess + 1))
            if not agreed:
                break
            going, total = agreed, agreed_total
        return progress

    def _line(
        self,
        kept: Sequence[int],
        drawn: tuple[int, ...],
        edge: Edge | None,
        samples: tuple[int, ...],
        log_prob: float,
        depth: int,
    ) -> Line:
        """After ``kept``, which was read: ``drawn``, and as much of what is likely to follow as an action may have; an
        end mark is not worth reading."""
        keep, end = len(kept), None
        most = self._most - keep - len(drawn) - 1
        if edge is not None:
            whole = edge.forced[:-1] if isinstance(edge.end, Leaf) else edge.forced
            guess = whole[:most]
            end = edge.end if len(guess) == len(whole) else None
        else:
            guess = self._replies.likely([*kept, *drawn], most)
        return Line(self, keep, (*drawn, *guess), end, samples, log_prob, depth, tuple(range(len(guess), -1, -1)))

    def _follow(self, end: Node | Text | Leaf | None, token: int) -> Edge | None:
        if self._guessing and isinstance(end, Node) and token in end.tokens:
            return end.edge(token)
        return None


def _may(allowed: Allowed, token: int) -> bool:
    return token not in allowed.tokens if isinstance(allowed, AllBut) else token in allowed


Group = tuple[int, tuple[int, ...], float]
"""The token drawn, the samples that drew it, and its log-probability."""


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
