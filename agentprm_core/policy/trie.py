"""The admissible commands as a tree of tokens: what may come next, and what must.

Where only one token may follow, nothing is to be decided and the model is not asked. A node therefore has at least two
children, and the forced tokens lie on the edges. Edges are made when they are walked: of thirty commands an action
passes two or three.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from agentprm_core.errors import DataError
from agentprm_core.policy.models import Checkpoint

TRIES = 20_000
"""Tries kept: the same lists of commands come up again and again in the episodes of one game."""

Spelling = tuple[bytes, *tuple[int, ...], str]
"""A command's tokens as bytes that sort as they do (in less than half the time that tuples take), the tokens
themselves, the stop token last of them, and the command."""
_BESIDE = 3
"""What a spelling has beside the command's own tokens."""
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
    end: Node | Leaf


class Node:
    """A decision between at least two tokens."""

    __slots__ = ("_column", "_depth", "_edges", "_likely", "_spelt", "tokens")

    def __init__(self, spelt: Sequence[Spelling], depth: int) -> None:
        self._spelt, self._depth = spelt, depth
        self._column = list(map(_at(depth), spelt))
        self._edges: dict[int, Edge] = {}
        self.tokens = tuple(dict.fromkeys(self._column))
        """The tokens that may come next, ascending."""
        self._likely: tuple[int, Edge] | bool | None = False  # not looked for yet

    def edge(self, token: int) -> Edge:
        """What follows ``token``, itself not included."""
        if token not in self._edges:
            these = slice(bisect_left(self._column, token), bisect_right(self._column, token))
            self._edges[token] = _edge(self._spelt[these], self._depth + 1)
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
    """Tokens of the longest command, its stop token not counted."""


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
        return Trie(build_trie(spelt), max(map(len, spelt)) - _BESIDE) if spelt else None

    def _spelling(self, command: str) -> Spelling | None:
        tokens = self._renderer.action_text(command)
        if self._unknown is not None and self._unknown in tokens:
            return None
        return spelling((*tokens, self._renderer.stop_token), command)


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
    while depth < end and first[depth] == last[depth]:  # then so have all that are sorted in between
        depth += 1
    if depth == end:
        return Edge(first[start:end], Leaf(first[end]))
    return Edge(first[start:depth], Node(spelt, depth))
