"""Best-of-N: at each turn N sampled actions, duplicates merged, the scorer's best is played (paper A §4.3).

With ``prior`` τ the best is argmax Q_φ(s,a) + τ log π̂(a|s), π̂ the action's share of the N samples: the likeliest
action of the policy ∝ π̂ exp(Q_φ/τ), which solves paper A's eq. 4 with β = τ around π̂. Score alone picks a rare sample
whenever the scorer errs upwards on one, and of many samples many are rare. τ = 0 is the papers' Best-of-N.

And over whole trajectories (paper B §4.1): N episodes of a game, the one whose last action scores best.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from agentprm_core.policy.sampler import Cost, Decision, Sampler
from agentprm_core.search.scorer import Scorer
from agentprm_core.types import Episode

Decided = tuple[int, tuple[Decision, ...]]
"""A seat, and the candidates of its state."""


class Chooser:
    """A player that asks ``sampler`` for ``samples`` actions and plays the one that ``scorer`` likes best.

    ``prior``: τ of :func:`judged`. Of equals the action sampled more often is played. Where all samples agree nothing
    is scored.
    """

    def __init__(self, sampler: Sampler, scorer: Scorer, samples: int, prior: float = 0.0) -> None:
        if samples < 1:
            raise ValueError(f"Best-of-N needs at least one sample, not {samples}")
        self.seats = sampler.seats
        self._sampler, self._scorer, self._samples, self._prior = sampler, scorer, samples, prior
        self._scoring: dict[int, int] = {}

    def open(self, seed: int) -> int:
        seat = self._sampler.open(seed)
        self._scoring[seat] = self._scorer.open(seed)
        return seat

    def see(self, seat: int, observation: str, admissible: tuple[str, ...]) -> bool:
        room = self._sampler.see(seat, observation, admissible)
        return self._scorer.see(self._scoring[seat], observation, admissible) and room

    def ask(self, seat: int) -> None:
        self._sampler.ask(seat, self._samples)

    def tell(self, seat: int, action: str, reason: str = "") -> None:
        self._sampler.tell(seat, action, reason)
        self._scorer.tell(self._scoring[seat], action, reason)

    def tick(self) -> list[tuple[int, tuple[Decision, ...]]]:
        return best_first(self._sampler.tick(), self._scores, self._prior)

    def close(self, seat: int) -> Cost:
        read = self._scorer.close(self._scoring.pop(seat))
        return self._sampler.close(seat) + Cost(prm_read=read)

    def _scores(self, asked: Sequence[Decided]) -> list[list[float]]:
        return self._scorer.score([(self._scoring[seat], decisions) for seat, decisions in asked])


def best_trajectories(episodes: Iterable[Episode], worths: Sequence[float]) -> list[Episode]:
    """Of each game the episode of most worth; of equal ones the first by index. ``worths``: one an episode, in their
    order."""
    scored = sorted(zip(episodes, worths, strict=True), key=lambda pair: (pair[0].game_id, -pair[1], pair[0].index))
    return [next(group)[0] for _, group in groupby(scored, key=lambda pair: pair[0].game_id)]


def judged(decisions: Sequence[Decision], scores: Sequence[float], prior: float) -> list[float]:
    """score + ``prior`` · log π̂(a|s) of each candidate of one state; π̂ is the share of the samples that are its
    action, whatever their reasons."""
    if not prior:
        return list(scores)
    return [q + prior * share for q, share in zip(scores, log_shares(decisions), strict=True)]


def log_shares(decisions: Sequence[Decision]) -> list[float]:
    """log π̂(a|s) of each candidate of one state."""
    counts: Counter[str] = Counter()
    for decision in decisions:
        counts[decision.action] += decision.count
    samples = counts.total()
    return [math.log(counts[decision.action] / samples) for decision in decisions]


def best_first(
    decided: Sequence[Decided], scores: Callable[[Sequence[Decided]], list[list[float]]], prior: float
) -> list[Decided]:
    """:func:`ranked` by what ``scores`` says of them. It is not asked where all candidates are one action, be it with
    several reasons: nothing is to be chosen there."""
    several = [(seat, decisions) for seat, decisions in decided if len({d.action for d in decisions}) > 1]
    chosen = {seat: ranked(decisions, q, prior) for (seat, decisions), q in zip(several, scores(several))}
    return [(seat, chosen.get(seat, decisions)) for seat, decisions in decided]


def ranked(decisions: Sequence[Decision], scores: Sequence[float], prior: float = 0.0) -> tuple[Decision, ...]:
    """The candidates of one state, the best by :func:`judged` first; of equal ones the action sampled more often."""
    worth = judged(decisions, scores, prior)
    order = sorted(range(len(decisions)), key=lambda i: (-worth[i], -decisions[i].count))
    return tuple(decisions[i] for i in order)
