"""The admissible commands as a tree of tokens: what may come next, and what must.

Where only one token may follow, nothing is to be decided and the model is not asked. A node therefore has at least two
children, and the forced tokens lie on the edges. Edges are made when they are walked: of thirty commands an action
passes two or three.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Spelling = tuple[tuple[int, ...], str]
"""A command's tokens, its stop token last, and the command."""


class Unspeakable(ValueError):
    """No admissible command can be written with the policy's tokenizer."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A whole command."""

    command: str


@dataclass(frozen=True, slots=True)
class Edge:
    """Tokens with no choice between them, and what stands at their end."""

    forced: tuple[int, ...]
    end: Node | Leaf


class Node:
    """A decision between at least two tokens."""

    __slots__ = ("_depth", "_edges", "_spelt", "tokens")

    def __init__(self, spelt: dict[int, list[Spelling]], depth: int) -> None:
        self.tokens = tuple(sorted(spelt))
        """The tokens that may come next, ascending."""
        self._spelt, self._depth = spelt, depth
        self._edges: dict[int, Edge] = {}

    def edge(self, token: int) -> Edge:
        """What follows ``token``, itself not included."""
        if token not in self._edges:
            self._edges[token] = _edge(self._spelt[token], self._depth + 1)
        return self._edges[token]


def build_trie(spelt: Sequence[Spelling]) -> Edge:
    """The trie of these commands (at least one); the root is an edge. Of two with the same tokens the first counts."""
    return _edge(spelt, 0)


def _edge(spelt: Sequence[Spelling], start: int) -> Edge:
    """The edge that leads from position ``start`` of these commands, equal up to there."""
    tokens = spelt[0][0]
    depth = start
    while depth < len(tokens):
        if len(spelt) == 1:
            depth = len(tokens)
            break
        following: dict[int, list[Spelling]] = {}
        for spelling in spelt:
            following.setdefault(spelling[0][depth], []).append(spelling)
        if len(following) > 1:
            return Edge(tokens[start:depth], Node(following, depth))
        depth += 1
    return Edge(tokens[start:], Leaf(spelt[0][1]))
