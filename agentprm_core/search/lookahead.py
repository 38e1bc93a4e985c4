"""Model-predictive reasoning: imagine what comes of each candidate, and play the one whose imagined future scores best.

At each turn N actions are sampled. A world model (:mod:`agentprm_core.search.world_model`) says what would come of
each, the policy goes on from there, and after d imagined steps the PRM scores where it has led (paper A,
model-predictive reasoning):

    value(a) = γ^d Q_φ(s_d, a_d),   and γ^(k−1) where the model says that step k won

With d = 0 it is Best-of-N, and as there ``prior`` · log π̂(a|s) is added to choose by. In imagination the policy
decodes freely: nobody says what is admissible there. No step of the world is spent on a candidate that is not played.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from agentprm_core.policy.sampler import Cost, Decision, Sampler
from agentprm_core.search.best_of_n import Decided, best_first
from agentprm_core.search.scorer import Scorer
from agentprm_core.search.world_model import WorldModel
from agentprm_core.seeding import episode_seed


@dataclass(slots=True)
class _Seat:
    """One episode, as the four who follow it know it; the sampler's seat is the player's."""

    seed: int
    dreamer: int
    model: int
    scorer: int
    cost: Cost = field(default_factory=Cost)
    turns: int = 0


@dataclass(slots=True, eq=False)
class _Future:
    """What is imagined after one candidate."""

    of: _Seat
    dreamer: int
    model: int
    scorer: int
    action: str
    value: float


class Lookahead:
    """A player that looks ``depth`` steps ahead from each of ``samples`` actions.

    ``imagined`` and ``played`` count the steps of the model and of the world; with the world in the model's place all
    of them would have been the world's, so :attr:`saved` is the share of real steps saved.
    """

    def __init__(
        self,
        sampler: Sampler,
        dreamer: Sampler,
        scorer: Scorer,
        model: WorldModel,
        *,
        samples: int,
        depth: int,
        gamma: float,
        prior: float = 0.0,
    ) -> None:
        """``dreamer`` is the same policy decoding freely. It, scorer and model need 1 + ``samples`` seats for each of
        the sampler's. Raises ValueError for bad numbers."""
        if samples < 1 or depth < 0:
            raise ValueError(
                f"a lookahead needs at least 1 sample and a depth of at least 0, not {samples} and {depth}"
            )
        if dreamer.seats < sampler.seats * (1 + samples) or dreamer.constrained:
            raise ValueError(f"the dreamer must decode freely in {sampler.seats * (1 + samples)} seats")
        self.seats = sampler.seats
        self._sampler, self._dreamer, self._scorer, self._model = sampler, dreamer, scorer, model
        self._samples, self._depth, self._gamma, self._prior = samples, depth, gamma, prior
        self._seats: dict[int, _Seat] = {}
        self.imagined = self.played = 0

    @property
    def saved(self) -> float:
        """Share of all steps that were imagined."""
        return self.imagined / max(1, self.imagined + self.played)

    def open(self, seed: int) -> int:
        seat = self._sampler.open(seed)
        self._seats[seat] = _Seat(seed, self._dreamer.open(seed), self._model.open(seed), self._scorer.open(seed))
        return seat

    def see(self, seat: int, observation: str, admissible: tuple[str, ...]) -> bool:
        at = self._seats[seat]
        self._model.see(at.model, observation)
        room = self._sampler.see(seat, observation, admissible)
        room = self._dreamer.see(at.dreamer, observation, admissible) and room
        return self._scorer.see(at.scorer, observation, admissible) and room

    def ask(self, seat: int) -> None:
        self._sampler.ask(seat, self._samples)

    def tell(self, seat: int, action: str, reason: str = "") -> None:
        at = self._seats[seat]
        self._sampler.tell(seat, action, reason)
        self._dreamer.tell(at.dreamer, action, reason)
        self._scorer.tell(at.scorer, action, reason)
        self._model.tell(at.model, action)
        at.turns += 1
        self.played += 1

    def tick(self) -> list[tuple[int, tuple[Decision, ...]]]:
        return best_first(self._sampler.tick(), self._values, self._prior)

    def close(self, seat: int) -> Cost:
        at = self._seats.pop(seat)
        return self._sampler.close(seat) + at.cost + self._closed(at)

    def _values(self, decided: Sequence[Decided]) -> list[list[float]]:
        asked = [(self._seats[seat], decisions) for seat, decisions in decided]
        scores = self._scorer.score([(at.scorer, decisions) for at, decisions in asked])
        futures = [
            [self._fork(at, number, choice.action, q) for number, (choice, q) in enumerate(zip(decisions, of_state))]
            for (at, decisions), of_state in zip(asked, scores)
        ]
        going = [future for of_state in futures for future in of_state] if self._depth else []
        for step in range(1, self._depth + 1):
            going = self._step(going, step)
        for future in (future for of_state in futures for future in of_state):
            future.of.cost += self._closed(future)
        return [[future.value for future in of_state] for of_state in futures]

    def _step(self, futures: list[_Future], step: int) -> list[_Future]:
        """One imagined step of each; those that go on, with the action they would take next and its worth."""
        self.imagined += len(futures)
        going = []
        for future, seen in zip(futures, self._model.imagine([(f.model, f.action) for f in futures])):
            if seen is None:
                continue
            if seen.won:
                future.value = self._gamma ** (step - 1)
                continue
            self._dreamer.tell(future.dreamer, future.action)
            self._scorer.tell(future.scorer, future.action)
            room = self._dreamer.see(future.dreamer, seen.text, ())
            if self._scorer.see(future.scorer, seen.text, ()) and room:
                going.append(future)
        decided = self._decide(going)
        for future, (q,) in zip(going, self._scorer.score([(f.scorer, d) for f, d in zip(going, decided)])):
            future.value = self._gamma**step * q
        for future, (choice,) in zip(going, decided):
            future.action = choice.action
        return going

    def _decide(self, futures: Sequence[_Future]) -> list[tuple[Decision, ...]]:
        for future in futures:
            self._dreamer.ask(future.dreamer)
        decided: dict[int, tuple[Decision, ...]] = {}
        while len(decided) < len(futures):
            decided.update(self._dreamer.tick())
        return [decided[future.dreamer] for future in futures]

    def _fork(self, at: _Seat, number: int, action: str, value: float) -> _Future:
        seed = episode_seed(at.seed, at.turns, number)
        seats = self._dreamer.fork(at.dreamer, seed), self._model.fork(at.model), self._scorer.fork(at.scorer)
        return _Future(at, *seats, action, value)

    def _closed(self, seats: _Seat | _Future) -> Cost:
        read = Cost(policy_read=self._model.close(seats.model), prm_read=self._scorer.close(seats.scorer))
        return self._dreamer.close(seats.dreamer) + read
