"""The admissible commands as a tree of tokens: what may come next, and what must.

Where only one token may follow, nothing is to be decided and the model is not asked. A node therefore has at least two
children, and the forced tokens lie on the edges. Edges are made when they are walked: of thirty commands an action
passes two or three.

A command may be a template with free text in it (:data:`agentprm_core.worlds.base.OPEN`): ``search[…]``. The text is
one token or more. Its first is any that no other command goes on with there; it lasts until a token that begins what
follows the text in a template, and that token closes it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from operator import add, itemgetter
from typing import Literal, NamedTuple

import numpy as np

from agentprm_core.errors import DataError
from agentprm_core.policy.models import Checkpoint
from agentprm_core.worlds.base import OPEN

TRIES = 20_000
"""Tries kept: the same lists of commands come up again and again in the episodes of one game."""

Spelling = tuple[bytes, *tuple[int, ...], str]
"""A command's tokens as bytes that sort as they do (in less than half the time that tuples take), the tokens
themselves, the stop token last of them, and the command."""
_BESIDE = 3
"""What a spelling has beside the command's own tokens."""
TEXT = 2**32 - 1
"""Stands for free text among tokens, and after all of them."""
_at = cache(itemgetter)
_ORDER, _FIRST = _at(0), 1


class Unspeakable(DataError):
    """No admissible command can be written with the policy's tokenizer."""


class Leaf(NamedTuple):  # a frozen dataclass takes twice as long to make, and each turn makes several
    """A whole command."""

    command: str


class Edge(NamedTuple):
    """Tokens with no choice between them, and what stands at their end."""

    forced: tuple[int, ...]
    end: Node | Text | Leaf


class Text(NamedTuple):
    """Within free text, of which there is some already."""

    closing: Node
    """What may end it."""

    def edge(self, token: int) -> Edge:
        """What follows ``token``: the rest of a template, or more text."""
        return self.closing.edge(token) if token in self.closing.tokens else Edge((), self)


class Node:
    """A decision between at least two tokens, or whether free text begins."""

    __slots__ = ("_column", "_depth", "_edges", "_likely", "_spelt", "opens", "tokens")

    def __init__(self, spelt: Sequence[Spelling], depth: int) -> None:
        self._spelt, self._depth = spelt, depth
        self._column = list(map(_at(depth), spelt))
        self._edges: dict[int, Edge] = {}
        tokens = tuple(dict.fromkeys(self._column))
        self.opens = tokens[-1] == TEXT
        """Whether any other token may come next too, and begin free text."""
        self.tokens = tokens[:-1] if self.opens else tokens
        """The tokens that go on in a command, ascending."""
        self._likely: tuple[int, Edge] | Literal[False] | None = False  # not looked for yet

    def edge(self, token: int) -> Edge:
        """What follows ``token``, itself not included."""
        if self.opens and token not in self.tokens:
            token = TEXT
        if token not in self._edges:
            these, depth = slice(bisect_left(self._column, token), bisect_right(self._column, token)), self._depth + 1
            spelt = self._spelt[these]
            self._edges[token] = Edge((), Text(Node(spelt, depth))) if token == TEXT else _edge(spelt, depth)
        return self._edges[token]

    @property
    def likely(self) -> tuple[int, Edge] | None:
        """The token under which more than half of the commands lie, and what follows it, if a decision does."""
        if self._likely is False:
            token = self._column[len(self._column) // 2]  # of a sorted column more than half of which is alike
            many = bisect_right(self._column, token) - bisect_left(self._column, token)
            edge = self.edge(token) if 2 * many > len(self._column) else None
            self._likely = (token, edge) if edge and isinstance(edge.end, Node) else None
        return self._likely


class Trie(NamedTuple):
    root: Edge
    longest: int
    """Tokens of the longest command, its stop token not counted, free text as one."""
    opens: bool
    """Whether there is free text in any."""


class _Spellings(dict[str, Spelling | None]):
    """Of commands there are few thousand: all are remembered, and found faster than by functools.cache."""

    def __init__(self, spell: Callable[[str], Spelling | None]) -> None:
        self._spell = spell

    def __missing__(self, command: str) -> Spelling | None:
        self[command] = found = self._spell(command)
        return found


class CommandTries:
    """The tries of lists of commands as one policy spells them, remembered."""

    def __init__(self, policy: Checkpoint) -> None:
        self._renderer, self._unknown = policy.renderer, policy.tokenizer.unk_token_id
        self._spelt = _Spellings(self._spelling)
        self.find = lru_cache(maxsize=TRIES)(self._build)
        """commands → their trie without those that have a token for many words; None where none is left."""

    def speakable(self, commands: tuple[str, ...]) -> Trie:
        """As :attr:`find`. Raises :class:`Unspeakable` where that finds none."""
        trie = self.find(commands)
        if trie is None:
            raise Unspeakable(f"none of the {len(commands)} admissible commands is made of known tokens: {commands}")
        return trie

    def _build(self, commands: tuple[str, ...]) -> Trie | None:
        spelt = list(filter(None, map(self._spelt.__getitem__, commands)))
        if not spelt:
            return None
        return Trie(build_trie(spelt), max(map(len, spelt)) - _BESIDE, any(TEXT in one for one in spelt))

    def _spelling(self, command: str) -> Spelling | None:
        tokens = [*self._renderer.action_text(command)] if OPEN not in command else self._template(command)
        if self._unknown is not None and self._unknown in tokens:
            return None
        return spelling((*tokens, self._renderer.stop_token), command)

    def _template(self, command: str) -> list[int]:
        """Its fixed parts are spelt one by one: what a tokenizer makes of the whole depends on the text."""
        first, *rest = self._parts(command)
        tokens = [*self._renderer.action_text(first)]
        for part in rest:
            tokens += (TEXT, *self._renderer.words(part))
        return tokens

    def _parts(self, command: str) -> list[str]:
        """What is fixed before, between and after texts; two texts without a word between them are one."""
        first, *rest = command.split(OPEN)
        return [first, *filter(self._renderer.words, rest[:-1]), rest[-1]]

    def filled(self, command: str, tokens: Sequence[int]) -> str:
        """``command``, a template, with the free text that is in ``tokens``, up to and with the stop token."""
        whole = self._spelt[command]
        assert whole is not None, "it is in a trie"
        spelt = whole[_FIRST:-1]
        texts, at = [], 0
        for number, token in enumerate(spelt):
            if token != TEXT:
                at += 1
                continue
            end = at + 1  # a text's first token closes nothing
            while tokens[end] != spelt[number + 1]:
                end += 1
            texts.append(self._renderer.said(tokens[at:end]))
            at = end
        first, *rest = self._parts(command)
        return first + "".join(map(add, texts, rest))


def spelling(tokens: Sequence[int], command: str) -> Spelling:
    """``tokens`` end with the stop token."""
    return np.array(tokens, ">u4").tobytes(), *tokens, command


def build_trie(spelt: Iterable[Spelling]) -> Edge:
    """The trie of these commands (at least one); the root is an edge. Of two with the same tokens the first counts."""
    return _edge(sorted(spelt, key=_ORDER), _FIRST)


def _edge(spelt: Sequence[Spelling], start: int) -> Edge:
    """The edge that leads from position ``start`` of these commands, sorted, equal up to there."""
    first, last = spelt[0], spelt[-1]
    depth, end = start, len(first) - 1
    while depth < end and first[depth] == last[depth] != TEXT:  # then so have all that are sorted in between
        depth += 1
    if depth == end:
        return Edge(first[start:end], Leaf(first[end]))  # pyright: ignore[reportArgumentType]: tokens, and the command
    return Edge(first[start:depth], Node(spelt, depth))  # pyright: ignore[reportArgumentType]: tokens
