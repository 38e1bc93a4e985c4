"""Scorers that a PRM is held against: chance, the policy's majority, and how likely an action has become in training.

What a search wins under one of these is not the PRM's merit (:mod:`agentprm_core.search.scorers` names them all).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from agentprm_core.policy.sampler import Decision
from agentprm_core.search.scorer import PrmScorer
from agentprm_core.seeding import episode_seed

_SEEDS = 2.0**63
"""Seeds are below it."""


class Told:
    """What blind scorers share: of a conversation they know its seed and what was done in it. They read no token."""

    def __init__(self) -> None:
        self._done: dict[int, tuple[int, tuple[str, ...]]] = {}
        self._next = 0

    def open(self, seed: int) -> int:
        return self._keep(seed, ())

    def fork(self, seat: int) -> int:
        return self._keep(*self._done[seat])

    def see(self, seat: int, observation: str, admissible: tuple[str, ...]) -> bool:
        return True

    def tell(self, seat: int, action: str, reason: str = "") -> None:
        seed, done = self._done[seat]
        self._done[seat] = seed, (*done, action)

    def close(self, seat: int) -> int:
        del self._done[seat]
        return 0

    def _keep(self, seed: int, done: tuple[str, ...]) -> int:
        self._next += 1
        self._done[self._next] = seed, done
        return self._next


class Constant(Told):
    """½ for every action. Searches break ties by the number of samples, so the policy's most frequent one wins."""

    def score(self, asked: Sequence[tuple[int, Sequence[Decision]]]) -> list[list[float]]:
        return [[0.5] * len(candidates) for _, candidates in asked]


class Random(Told):
    """Uniform in [0, 1): a hash of the episode's seed, of what was done in it before, and of the action. So an action
    scores the same at a state whatever is asked beside it, in whatever order."""

    def score(self, asked: Sequence[tuple[int, Sequence[Decision]]]) -> list[list[float]]:
        return [[self._chance(seat, candidate) for candidate in candidates] for seat, candidates in asked]

    def _chance(self, seat: int, candidate: Decision) -> float:
        seed, done = self._done[seat]
        return episode_seed(seed, "random score", *done, "then", candidate.action, candidate.reason) / _SEEDS


class Implicit:
    """σ(κ log π_φ(a|s) − κ log π_ref(a|s)): how much likelier training has made an action. The reward that a policy
    trained with weight κ on a KL to π_ref maximises (DPO, arXiv 2305.18290, eq. 5; of single steps: PRIME, arXiv
    2502.01456)."""

    def __init__(self, trained: PrmScorer, reference: PrmScorer) -> None:
        """Both give κ log π alone as their logits, each of its own model."""
        self._both = trained, reference
        self._seats: dict[int, tuple[int, int]] = {}
        self._next = 0

    def open(self, seed: int) -> int:
        trained, reference = self._both
        return self._keep(trained.open(seed), reference.open(seed))

    def fork(self, seat: int) -> int:
        (trained, reference), (one, other) = self._both, self._seats[seat]
        return self._keep(trained.fork(one), reference.fork(other))

    def see(self, seat: int, observation: str, admissible: tuple[str, ...]) -> bool:
        seats = zip(self._both, self._seats[seat])
        return all([scorer.see(own, observation, admissible) for scorer, own in seats])

    def tell(self, seat: int, action: str, reason: str = "") -> None:
        for scorer, own in zip(self._both, self._seats[seat]):
            scorer.tell(own, action, reason)

    def close(self, seat: int) -> int:
        return sum(scorer.close(own) for scorer, own in zip(self._both, self._seats.pop(seat)))

    def score(self, asked: Sequence[tuple[int, Sequence[Decision]]]) -> list[list[float]]:
        trained, reference = (
            scorer.logits([(self._seats[seat][number], candidates) for seat, candidates in asked])
            for number, scorer in enumerate(self._both)
        )
        return [
            (torch.tensor(of_trained) - torch.tensor(of_reference)).sigmoid().tolist()
            for of_trained, of_reference in zip(trained, reference, strict=True)
        ]

    def _keep(self, trained: int, reference: int) -> int:
        self._next += 1
        self._seats[self._next] = trained, reference
        return self._next
