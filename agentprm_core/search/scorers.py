"""Who may choose in a search, by name: the PRM, a part of it, or what it is held against.

| name | score of an action |
|---|---|
| ``prm`` | Q_φ = σ(w·h + κ log π_φ); of an ensemble the mean of its members', or the lowest |
| ``head`` | σ(w·h): the value head alone |
| ``trained_likelihood`` | σ(κ log π_φ): the PRM's trained trunk alone |
| ``untrained_likelihood`` | σ(κ log π): the policy that plays; nothing was learnt |
| ``implicit`` | σ(κ (log π_φ − log π)): how much likelier training has made it |
| ``constant`` | ½: the most frequent sample wins |
| ``random`` | a hash of the episode, what was done in it and the action |
| ``true_q`` | mean return of plays from it in the game itself, hidden things included: a bound, not a player |

π_φ is what the PRM's trunk predicts. κ is the PRM's own, and :data:`KAPPA` where that is 0 or where there is no PRM.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from agentprm_core.errors import DataError
from agentprm_core.policy.models import Checkpoint
from agentprm_core.policy.sampler import Sampler
from agentprm_core.prm.ensemble import alone
from agentprm_core.prm.model import likelihood_weight, reads_likelihood
from agentprm_core.rollout import Start
from agentprm_core.search.beside import Ensemble, Implicit
from agentprm_core.search.controls import Constant, Random
from agentprm_core.search.decoding_config import LIKELIHOOD, PRM
from agentprm_core.search.oracle import TrueQ
from agentprm_core.search.scorer import PrmScorer, Scorer

KAPPA = 0.3
"""κ of a likelihood where no PRM says another: ``critic.likelihood`` of the default campaign."""


@dataclass(frozen=True)
class Materials:
    """What scorers are made of."""

    policy: Checkpoint
    """The policy that plays."""
    prm: Checkpoint | None
    """It may be an ensemble, which has no parts: only ``prm`` can be asked of it."""
    seats: int
    context: int
    max_action_tokens: int
    starts: Sequence[Start]
    """Of the episodes that are played."""
    second: Callable[[], Sampler]
    """Another sampler of the policy, for ``true_q``."""
    plays: int
    """Of ``true_q``: continuations of each candidate."""
    gamma: float
    """Of ``true_q``: discount of a return, a turn."""
    world: str
    max_turns: int


def scorer_of(name: str, of: Materials) -> Scorer:
    """The scorer of this name.

    Raises:
        ValueError: it needs a PRM and there is none.
        DataError: it needs a likelihood that the PRM cannot give.
    """
    return MAKERS[name](of)


def _prm(of: Materials) -> Scorer:
    prm = _needed(of)
    if not prm.members:
        return _reading(prm, of)
    return Ensemble([_reading(member, of) for member in prm.members], lowest=prm.lowest)


def _head(of: Materials) -> PrmScorer:
    return _reading(alone(_needed(of)), of, likelihood=0.0)


def _trained_likelihood(of: Materials) -> PrmScorer:
    prm = alone(_needed(of))
    if not reads_likelihood(prm.model):
        raise DataError(
            "the likelihood of a PRM's trunk needs a model whose embedding is also its output, and no adapter on the "
            "embedding; this PRM is another: leave out trained_likelihood and implicit"
        )
    return _reading(prm, of, head=False, likelihood=_kappa(of))


def _untrained_likelihood(of: Materials) -> PrmScorer:
    return _reading(of.policy, of, head=False, likelihood=_kappa(of))


def _implicit(of: Materials) -> Implicit:
    return Implicit(_trained_likelihood(of), _untrained_likelihood(of))


def _constant(of: Materials) -> Constant:
    return Constant()


def _random(of: Materials) -> Random:
    return Random()


def _true_q(of: Materials) -> TrueQ:
    games = {start.seed: start.game for start in of.starts}
    how = {"plays": of.plays, "gamma": of.gamma, "world_name": of.world, "max_turns": of.max_turns}
    return TrueQ(of.second(), games, **how)


MAKERS: Mapping[str, Callable[[Materials], Scorer]] = {
    PRM: _prm,
    "head": _head,
    "trained_likelihood": _trained_likelihood,
    LIKELIHOOD: _untrained_likelihood,
    "implicit": _implicit,
    "constant": _constant,
    "random": _random,
    "true_q": _true_q,
}
"""What makes each of :data:`agentprm_core.search.decoding_config.SCORERS`."""


def _reading(model: Checkpoint, of: Materials, *, head: bool = True, likelihood: float | None = None) -> PrmScorer:
    room = {"slots": of.seats, "context": of.context, "max_action_tokens": of.max_action_tokens}
    return PrmScorer(model, **room, head=head, likelihood=likelihood)


def _needed(of: Materials) -> Checkpoint:
    if of.prm is None:
        raise ValueError("this search needs a PRM to choose")
    return of.prm


def _kappa(of: Materials) -> float:
    return (likelihood_weight(of.prm.model) if of.prm else 0.0) or KAPPA
