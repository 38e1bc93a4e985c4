"""The admissible commands as a tree of tokens: what may come next, and what must.

Where only one token may follow, nothing is to be decided and the model is not asked. A node therefore has at least two
children, and the forced tokens lie on the edges.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


class Unspeakable(ValueError):
    """No admissible command can be written with the policy's tokenizer."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A whole command."""

    command: str


@dataclass(frozen=True, slots=True)
class Node:
    """A decision between at least two tokens."""

    tokens: tuple[int, ...]
    """The tokens that may come next, ascending."""
    edges: tuple[Edge, ...]
    """What follows each of them."""


@dataclass(frozen=True, slots=True)
class Edge:
    """Tokens with no choice between them, and what stands at their end."""

    forced: tuple[int, ...]
    end: Node | Leaf


def build_trie(
    commands: Sequence[str], encode: Callable[[str], tuple[int, ...]], *, stop_token: int, unknown_token: int | None
) -> Edge:
    """The trie of ``commands``, each spelt ``encode(command)`` and ``stop_token``; the root is an edge.

    A command with an unknown token in it would be spelt like others and is left out; of two commands with one spelling
    the first stays. Raises :class:`Unspeakable` when none is left.
    """
    spelt: dict[tuple[int, ...], str] = {}
    for command in commands:
        tokens = encode(command)
        if unknown_token is None or unknown_token not in tokens:
            spelt.setdefault((*tokens, stop_token), command)
    if not spelt:
        raise Unspeakable(f"none of the {len(commands)} admissible commands is made of known tokens: {commands[:5]}")
    return _edge(sorted(spelt.items()), 0)


def _edge(spelt: list[tuple[tuple[int, ...], str]], start: int) -> Edge:
    """The edge that leads from position ``start`` of these commands (sorted, equal up to there)."""
    first, last = spelt[0][0], spelt[-1][0]
    if len(spelt) == 1:
        return Edge(first[start:], Leaf(spelt[0][1]))
    split = start
    while first[split] == last[split]:  # sorted: what the first and the last share, all share
        split += 1
    tokens, edges, begin = [], [], 0
    for i in range(1, len(spelt) + 1):
        if i == len(spelt) or spelt[i][0][split] != spelt[begin][0][split]:
            tokens.append(spelt[begin][0][split])
            edges.append(_edge(spelt[begin:i], split + 1))
            begin = i
    return Edge(first[start:split], Node(tuple(tokens), tuple(edges)))
