"""What a policy said before, as a tree of tokens: its next reply often begins as most of the earlier ones did.

A language model writes the same form and the same few reasons again and again. Free decoding
(:class:`agentprm_core.policy.decoding.Free`) guesses them from here, and reads them in one call of the model, where it
would take one call a token.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

KNOWN = 4
"""Replies that begin alike before it is remembered how they go on."""
SHARE = 0.5
"""A guess goes on while more than this share of the replies that reached its start went the same way."""


class _Node:
    __slots__ = ("after", "count", "likeliest", "token")

    def __init__(self, token: int) -> None:
        self.token = token
        self.count = 0
        self.after: dict[int, _Node] = {}
        self.likeliest: _Node | None = None
        """Of those after it, the one with the highest count."""


class Replies:
    """The beginnings of the replies that were said so far."""

    def __init__(self, stop_token: int) -> None:
        self._stop, self._root = stop_token, _Node(stop_token)

    def remember(self, tokens: Iterable[int], times: int = 1) -> None:
        """``tokens``: a whole reply, up to and with the stop token if it ended; said ``times`` times."""
        node = self._root
        node.count += times
        for token in tokens:
            if node.count < KNOWN:  # nothing is kept of what is said once, so the tree stays small
                return
            if (child := node.after.get(token)) is None:
                child = node.after[token] = _Node(token)
            child.count += times
            if node.likeliest is None or child.count > node.likeliest.count:
                node.likeliest = child
            node = child

    def likely(self, path: Sequence[int], most: int) -> tuple[int, ...]:
        """Up to ``most`` tokens that more than :data:`SHARE` of the replies that began with ``path`` went on with,
        the stop token left out; empty where next to none began so."""
        node = self._root
        for token in path:
            if (child := node.after.get(token)) is None:
                return ()
            node = child
        floor, guess = SHARE * node.count, []
        while len(guess) < most and (node := node.likeliest) and node.count > floor and node.token != self._stop:
            guess.append(node.token)
        return tuple(guess)
