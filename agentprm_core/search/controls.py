"""Scorers that a PRM is held against and that read nothing: chance, and the policy's majority.

What a search wins under one of these is not the PRM's merit (:mod:`agentprm_core.search.scorers` names them all).
"""

from __future__ import annotations

from collections.abc import Sequence

from agentprm_core.policy.sampler import Decision
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
