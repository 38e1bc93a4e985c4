"""Several PRMs as one: beside each other, or with the average of their weights.

Members learn from the same labels and start from the same weights. They differ in the order of the batches.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from agentprm_core.errors import DataError
from agentprm_core.kept import digest
from agentprm_core.policy.models import Checkpoint
from agentprm_core.prm.model import likelihood_weight

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def ensemble(prms: Sequence[Checkpoint], *, lowest: bool = False) -> Checkpoint:
    """PRMs that score beside each other in a search by turn (:class:`agentprm_core.search.beside.Ensemble`): the mean
    of their scores, or with ``lowest`` the lowest of them. Raises DataError for fewer than two, and where their
    vocabularies or their κ differ."""
    first = prms[0]
    if len(prms) < 2:
        raise DataError("an ensemble needs two PRMs or more")
    words = first.tokenizer.get_vocab()
    if any(prm.tokenizer.get_vocab() != words for prm in prms):
        raise DataError("an ensemble's PRMs need the same vocabulary, and these have different ones")
    if len({likelihood_weight(prm.model) for prm in prms}) > 1:
        raise DataError(
            "an ensemble's PRMs need the same likelihood (critic.likelihood), and these have different ones"
        )
    own = digest(lowest, *(prm.digest for prm in prms))
    return replace(first, digest=own, members=tuple(prms), lowest=lowest)


def alone(prm: Checkpoint) -> Checkpoint:
    """The PRM, where one is needed. Raises DataError for an ensemble."""
    if prm.members:
        raise DataError(
            "several PRMs choose together in best_of_N and beam_NxM, and only as a whole (prm, worst_case): "
            "name one PRM for anything else"
        )
    return prm


@torch.no_grad()
def averaged(prms: Sequence[PreTrainedModel]) -> PreTrainedModel:
    """A PRM with the mean of their weights, each counted once: a weight-averaged reward model (WARM, arXiv
    2401.12187). Of adapters it has the mean of their factors. It costs what one PRM costs to ask. The given ones are
    left as they are. Raises DataError where they differ in shape or in κ.
    """
    states = [prm.state_dict() for prm in prms]
    shapes = [{name: weight.shape for name, weight in state.items()} for state in states]
    if any(other != shapes[0] for other in shapes) or len({likelihood_weight(prm) for prm in prms}) > 1:
        raise DataError("only models of one shape and one likelihood are averaged, and these differ")
    mean = copy.deepcopy(prms[0])
    means = {name: torch.stack([state[name].double() for state in states]).mean(0) for name in states[0]}
    mean.load_state_dict({name: weight.to(states[0][name].dtype) for name, weight in means.items()})
    return mean
