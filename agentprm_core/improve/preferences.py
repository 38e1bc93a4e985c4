"""Losses that move a policy from π_{i−1} towards the actions that score higher.

Both solve max E_{a~π}[Q(s,a)] − β KL(π ‖ π_{i−1}), whose solution is π*(a|s) ∝ π_{i−1}(a|s) exp(Q(s,a)/β).

- ``winner`` is DPO: only the order of two actions counts,
  −log σ(β [(log π(a⁺|s) − log π_{i−1}(a⁺|s)) − (log π(a⁻|s) − log π_{i−1}(a⁻|s))]). Its β scales log-ratios; a pair
  that differs by a hair pulls as hard as one that decides the game.
- ``soft`` uses the scores: cross-entropy from π* to π over the actions drawn at a state and the rest of them. Actions
  that score alike stay where π_{i−1} had them, and so do all at states where one action was drawn: without those the
  policy drifts where nothing is compared.

π and π_{i−1} are as play draws by them: among the admissible commands where it is constrained
(:mod:`agentprm_core.improve.choices`).

Beside either, ``imitation`` × the mean surprise (nats a token) at the policy's own actions in the episodes it won: the
episodes are read for their preferences anyway, so this costs next to nothing. It is the NLL term of iterative reasoning
preference optimisation (arXiv 2404.19733), on whole won episodes.

Shapes: ``P`` action tokens, ``I`` imitated tokens, ``J`` actions of a batch, ``S`` states.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from agentprm_core.improve.choices import AmongColumns, Choices
from agentprm_core.improve.kl import ReferredBatch, kl_sum
from agentprm_core.improve.pairs import Choice
from agentprm_core.policy.prompt import Rendered
from agentprm_core.training.attention import logits_of
from agentprm_core.training.columns import Values
from agentprm_core.training.packing import Batch, Row
from agentprm_core.training.trainer import Losses
from agentprm_core.training.tree import branch_sums, tree_row


@dataclass(frozen=True)
class ChoiceColumns(AmongColumns):
    """The loss weight is 1 once a choice, on its first action."""

    is_end: Values
    """1 on a branch's last token."""
    is_first: Values
    """1 there on the first action of each choice."""
    score: Values
    """There, of the action."""
    imitate: Values
    """1 on those tokens of the trunk that are to be imitated."""


Among = Callable[[int, Sequence[int]], np.ndarray]
"""(turn, tokens of an action there) → the numbers of the sets that they were drawn from."""


def choice_row(
    rendered: Rendered, choices: Sequence[Choice], imitate_from: int | None = None, among: Among | None = None
) -> Row[ChoiceColumns]:
    """The episode as the trunk and a branch for each action of each choice. Its own actions from turn ``imitate_from``
    on are to be imitated; None: none. ``among`` None: actions are drawn from the whole vocabulary."""
    branches = []
    for choice in choices:
        for number, (proposal, score) in enumerate(zip(choice.proposals, choice.scores)):
            own = ChoiceColumns.zeros(len(proposal.tokens))
            own.loss_weight[-1] = own.is_first[-1] = float(number == 0)
            own.is_end[-1], own.score[-1] = 1.0, score
            if among is not None:
                own.among[:] = among(choice.turn, proposal.tokens)
            branches.append((rendered.action_starts[choice.turn], proposal.tokens, own))
    trunk = ChoiceColumns.zeros(len(rendered.input_ids))
    if imitate_from is not None:
        first = rendered.action_starts[imitate_from]
        trunk.imitate[first:] = rendered.is_action[first:]
    return tree_row(rendered.input_ids, trunk, branches)


def dpo_objective(
    model: torch.nn.Module,
    batch: ReferredBatch[ChoiceColumns],
    beta: float,
    imitation: float = 0.0,
    choices: Choices | None = None,
) -> Losses:
    """Σ over pairs of −log σ(β·margin); the margin is the pair's difference of log π/π_{i−1}, chosen first."""
    ratio_J, kl, surprise_I = _look(model, batch, choices or Choices())
    margin = ratio_J[0::2] - ratio_J[1::2]
    metrics = {"kl": kl, "accuracy": ((margin > 0).float().sum(), margin.numel())}
    return _imitating(F.softplus(-beta * margin).sum(), metrics, surprise_I, batch, imitation)


def soft_objective(
    model: torch.nn.Module,
    batch: ReferredBatch[ChoiceColumns],
    beta: float,
    imitation: float = 0.0,
    choices: Choices | None = None,
) -> Losses:
    """Σ over states of the cross-entropy from π* ∝ π_{i−1} exp(Q/β) to π, over the actions drawn there and all others
    as one more, which scores as the drawn ones do on average: it keeps the drawn ones' share of the probability in
    place, and a state where one action was drawn keeps it."""
    ratio_J, kl, surprise_I = _look(model, batch, choices or Choices())
    ends_N = batch.columns.is_end > 0
    score_J, first_J = batch.columns.score[ends_N], batch.columns.is_first[ends_N] > 0
    state_J, states = first_J.cumsum(0) - 1, int(first_J.sum())
    reference_J = branch_sums(batch.reference, batch.branch[batch.branch >= 0], len(ratio_J))
    with torch.no_grad():
        target_J, rest_S = soft_targets(reference_J, score_J, state_J, states, beta)
        several_S = torch.bincount(state_J, minlength=states) > 1
        likes_S = _best(ratio_J, state_J, states) == _best(score_J, state_J, states)
    log_policy_J = ratio_J + reference_J
    others_S = 1 - log_policy_J.new_zeros(states).index_add(0, state_J, log_policy_J.exp())
    main = -(target_J * log_policy_J).sum() - (rest_S * others_S.clamp(min=_LEAST).log()).sum()
    metrics = {"kl": kl, "accuracy": (likes_S[several_S].float().sum(), several_S.sum())}
    return _imitating(main, metrics, surprise_I, batch, imitation)


def soft_targets(
    reference_J: torch.Tensor, score_J: torch.Tensor, state_J: torch.Tensor, states: int, beta: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """π* of each drawn action (J,) and of all others together (S,): π_{i−1} exp(Q/β), normalised over both.

    ``reference_J``: log π_{i−1} of the drawn actions, of which each state has each once.
    """
    none_S = score_J.new_zeros(states)
    likeliest_S = none_S.scatter_reduce(0, state_J, reference_J, "amax", include_self=False)
    share_J = (reference_J - likeliest_S[state_J]).exp()  # of the drawn ones' probability, however little that is
    mean_S = none_S.index_add(0, state_J, share_J * score_J) / none_S.index_add(0, state_J, share_J)
    worth_J = reference_J + (score_J - mean_S[state_J]) / beta
    rest_S = (1 - none_S.index_add(0, state_J, reference_J.exp())).clamp(min=_LEAST).log()
    top_S = rest_S.scatter_reduce(0, state_J, worth_J, "amax")
    worth_J, rest_S = (worth_J - top_S[state_J]).exp(), (rest_S - top_S).exp()
    total_S = rest_S.index_add(0, state_J, worth_J)
    return worth_J / total_S[state_J], rest_S / total_S


_LEAST = 1e-4
"""Probability of all actions that were not drawn, at least: its logarithm has a gradient."""

PREFERENCES = {"winner": dpo_objective, "soft": soft_objective}


def _look(
    model: torch.nn.Module, batch: ReferredBatch[ChoiceColumns], choices: Choices
) -> tuple[torch.Tensor, tuple[torch.Tensor, int], torch.Tensor]:
    """One pass of the model: (J,) log π/π_{i−1} of each action; the KL to π_{i−1} as (sum, actions) over the actions'
    tokens alone; and (I,) the surprise at the imitated tokens, nats."""
    is_action_N = batch.branch >= 0
    read_N = is_action_N | (batch.columns.imitate > 0)
    of_action = is_action_N[read_N]
    branch_P, actions = batch.branch[is_action_N], int(batch.branch.max()) + 1
    logits_RV, ids_R = logits_of(model, batch, read_N), batch.input_ids[read_N]
    logits_PV = choices.among(logits_RV[of_action], batch.columns.among[is_action_N])
    surprise_P = F.cross_entropy(logits_PV, ids_R[of_action], reduction="none")
    surprise_I = F.cross_entropy(logits_RV[~of_action], ids_R[~of_action], reduction="none")
    with torch.no_grad():
        kl = kl_sum(logits_PV, batch)
    ratio_J = branch_sums(-surprise_P - batch.reference, branch_P, actions)
    return ratio_J, (kl, actions), surprise_I


def _imitating(
    main: torch.Tensor, metrics: dict, surprise_I: torch.Tensor, batch: Batch[ChoiceColumns], imitation: float
) -> Losses:
    """The mean surprise weighs ``imitation`` beside the mean preference of the batch."""
    if not len(surprise_I):
        return Losses(main, metrics)
    metrics["imitation"] = (surprise_I.detach().sum(), len(surprise_I))
    return Losses(main + imitation * surprise_I.mean() * batch.columns.loss_weight.sum(), metrics)


def _best(x_J: torch.Tensor, state_J: torch.Tensor, states: int) -> torch.Tensor:
    """(S,) the last of each state's entries that is its greatest, as an index into J."""
    top_S = x_J.new_full((states,), -torch.inf).scatter_reduce(0, state_J, x_J, "amax")
    index_J = torch.where(x_J == top_S[state_J], torch.arange(len(x_J), device=x_J.device), -1)
    return index_J.new_full((states,), -1).scatter_reduce(0, state_J, index_J, "amax")
