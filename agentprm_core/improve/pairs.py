"""Which of the actions drawn at a state is to be preferred to which, by the process reward model's scores."""

from __future__ import annotations

from dataclasses import dataclass

from agentprm_core.improve.proposals import Proposal

UNENDED = -1.0
"""Score of an action without an end (paper A): below every real one."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The actions drawn at the state of one turn, and their scores."""

    turn: int
    proposals: tuple[Proposal, ...]
    scores: tuple[float, ...]

    @property
    def distinct(self) -> Choice:
        """Each action once."""
        once = {proposal.tokens: (proposal, score) for proposal, score in zip(self.proposals, self.scores)}
        return Choice(self.turn, *zip(*once.values()))


@dataclass(frozen=True, slots=True)
class Pair:
    """Two actions at the state of one turn, the first preferred."""

    turn: int
    chosen: Proposal
    rejected: Proposal
    chosen_score: float
    rejected_score: float

    @property
    def as_choice(self) -> Choice:
        return Choice(self.turn, (self.chosen, self.rejected), (self.chosen_score, self.rejected_score))


@dataclass
class PairCounts:
    """What became of the states that were visited."""

    states: int = 0
    same: int = 0
    """All samples were the same action: nothing to compare."""
    tied: int = 0
    """Scores no further apart than the margin: no pair."""
    pairs: int = 0
    score: float = 0.0
    """Sum over states of the mean score of the samples."""
    gap: float = 0.0
    """Sum over pairs of the difference of scores."""


def select_pair(choice: Choice, margin: float, counts: PairCounts) -> Pair | None:
    """The best against the worst of the samples at one state; with two samples that is online DPO as in paper A.

    The worst is another action than the best, whatever their reasons. None, and counted, where all are one action or
    their scores differ by no more than ``margin``. Of equal scores the first drawn counts.
    """
    proposals, scores = choice.proposals, choice.scores
    counts.states += 1
    counts.score += sum(scores) / len(scores)
    best = max(range(len(scores)), key=lambda k: scores[k])
    others = [k for k, proposal in enumerate(proposals) if proposal.action != proposals[best].action]
    if not others:
        counts.same += 1
        return None
    worst = min(others, key=lambda k: scores[k])
    if scores[best] - scores[worst] <= margin:
        counts.tied += 1
        return None
    counts.pairs += 1
    counts.gap += scores[best] - scores[worst]
    return Pair(choice.turn, proposals[best], proposals[worst], scores[best], scores[worst])
