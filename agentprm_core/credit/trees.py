"""Advantages in trees of episodes that share their beginnings (Tree-GRPO, Ji et al. 2025, arXiv 2509.21240).

A tree is one episode of a game and the episodes that fork from it, or from those. Each episode is a leaf, and owns the
turns that it does not share with the one it forks from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Leaf:
    """An episode of a tree."""

    length: int
    """Turns, the shared ones included."""
    reward: float
    parent: int | None = None
    """The number, in the tree, of the leaf that it forks from; it stands before this one. None: the first episode."""
    at: int = 0
    """Turns that it shares with that leaf."""


def owners(tree: Sequence[Leaf]) -> list[list[int]]:
    """Of each leaf, the leaf that owns each of its turns."""
    found: list[list[int]] = []
    for number, leaf in enumerate(tree):
        shared = [] if leaf.parent is None else found[leaf.parent][: leaf.at]
        found.append(shared + [number] * (leaf.length - len(shared)))
    return found


def leaf_advantages(trees: Sequence[Sequence[Leaf]]) -> list[np.ndarray]:
    """Of each tree of one game, the advantage of its leaves: among those of the tree and among those of all trees.

        A = (R − mean_tree R) / std_tree R + (R − mean R) / std R

    A part without spread is 0.
    """
    rewards = [np.array([leaf.reward for leaf in tree], dtype=float) for tree in trees]
    among_all = _standardised(np.concatenate(rewards))
    ends = np.cumsum([len(tree) for tree in trees])
    return [_standardised(own) + other for own, other in zip(rewards, np.split(among_all, ends[:-1]))]


def turn_advantages(trees: Sequence[Sequence[Leaf]]) -> list[list[np.ndarray]]:
    """Of each tree of one game, (T,) for each of its leaves: a turn that the leaf owns gets the sum of the advantages
    of all leaves through it, any other 0. So each turn is trained on once, as strongly as the leaves together would."""
    found = []
    for tree, advantage in zip(trees, leaf_advantages(trees)):
        own = [np.zeros(leaf.length) for leaf in tree]
        for number, of_turns in enumerate(owners(tree)):
            for turn, owner in enumerate(of_turns):
                own[owner][turn] += advantage[number]
        found.append(own)
    return found


def _standardised(values: np.ndarray) -> np.ndarray:
    centred = values - values.mean()
    spread = values.std()
    return centred / spread if spread > 1e-9 else np.zeros_like(centred)
