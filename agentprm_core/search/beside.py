"""Scorers that ask several others about the same conversations, and make one score of what these say.

``A`` are the candidates of a state, ``M`` the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

import torch

from agentprm_core.policy.sampler import Decision
from agentprm_core.search.scorer import PrmScorer, Scorer

Asked = Sequence[tuple[int, Sequence[Decision]]]
S = TypeVar("S", bound=Scorer)


class Beside(Generic[S]):
    """What they share: each of the others follows every conversation in a seat of its own."""

    def __init__(self, others: Sequence[S]) -> None:
        self.others = tuple(others)
        self._seats: dict[int, tuple[int, ...]] = {}
        self._next = 0

    def open(self, seed: int) -> int:
        return self._keep(tuple(other.open(seed) for other in self.others))

    def fork(self, seat: int) -> int:
        return self._keep(tuple(other.fork(own) for other, own in self._each(seat)))

    def see(self, seat: int, observation: str, admissible: tuple[str, ...]) -> bool:
        return all([other.see(own, observation, admissible) for other, own in self._each(seat)])

    def tell(self, seat: int, action: str, reason: str = "") -> None:
        for other, own in self._each(seat):
            other.tell(own, action, reason)

    def close(self, seat: int) -> int:
        read = sum(other.close(own) for other, own in self._each(seat))
        del self._seats[seat]
        return read

    def asking(self, asked: Asked) -> list[tuple[S, Asked]]:
        """Each of the others, with what is asked in its own seats."""
        return [
            (other, [(self._seats[seat][number], candidates) for seat, candidates in asked])
            for number, other in enumerate(self.others)
        ]

    def _each(self, seat: int) -> list[tuple[S, int]]:
        return list(zip(self.others, self._seats[seat], strict=True))

    def _keep(self, seats: tuple[int, ...]) -> int:
        self._next += 1
        self._seats[self._next] = seats
        return self._next


class Ensemble(Beside[Scorer]):
    """Several PRMs: the mean of their scores, or the lowest of them.

    The mean is an ensemble's prediction. The lowest is the "worst case" of Coste et al. (arXiv 2310.02743): an
    action is good only where every member says so.
    """

    def __init__(self, others: Sequence[Scorer], *, lowest: bool = False) -> None:
        super().__init__(others)
        self._lowest = lowest

    def score(self, asked: Asked) -> list[list[float]]:
        said = [other.score(own) for other, own in self.asking(asked)]
        scores = [torch.tensor(of_state) for of_state in zip(*said, strict=True)]
        return [(each_MA.amin(0) if self._lowest else each_MA.mean(0)).tolist() for each_MA in scores]


class Implicit(Beside[PrmScorer]):
    """σ(κ log π_φ(a|s) − κ log π_ref(a|s)): how much likelier training has made an action. The reward that a policy
    trained with weight κ on a KL to π_ref maximises (DPO, arXiv 2305.18290, eq. 5; of single steps: PRIME, arXiv
    2502.01456)."""

    def __init__(self, trained: PrmScorer, reference: PrmScorer) -> None:
        """Both give κ log π alone as their logits, each of its own model."""
        super().__init__((trained, reference))

    def score(self, asked: Asked) -> list[list[float]]:
        trained, reference = (other.logits(own) for other, own in self.asking(asked))
        return [
            (torch.tensor(of_trained) - torch.tensor(of_reference)).sigmoid().tolist()
            for of_trained, of_reference in zip(trained, reference, strict=True)
        ]
