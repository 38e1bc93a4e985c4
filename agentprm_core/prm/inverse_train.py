"""InversePRM over whole episodes: the expert's turns above the learner's, and no outcome (paper A, InversePRM).

    r(s,a) = Q(s,a) − γ Q(s',a'),   Q(s,a) alone at the last turn;   loss = weighted mean of BCE(σ(r), expert?)

An episode is one row. On a learner's episode Q(s',a') is the next score of the same row. On an expert's it is the score
of a branch at the next turn's state with the resampled a', or again the next score of the row where a' is what the
expert did. So the gradient runs through both Q, and both are read in one pass.

Shapes: ``M`` scored actions of a pack (a row's own turns in order, then its branches), ``N`` turns among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from agentprm_core.credit.expert_and_learner import inverse_logits, inverse_loss
from agentprm_core.policy.prompt import Renderer
from agentprm_core.prm.losses import prm_objective
from agentprm_core.prm.rows import action_tokens
from agentprm_core.prm.score import score_rows
from agentprm_core.prm.validation import validate
from agentprm_core.training.columns import ScoreColumns, TrainColumns, Values
from agentprm_core.training.launch import fit
from agentprm_core.training.packing import Batch, Row, pack
from agentprm_core.training.settings import TrainSettings
from agentprm_core.training.trainer import EpisodeTrainer
from agentprm_core.training.tree import tree_row
from agentprm_core.types import Episode

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_EPSILON = 1e-7


@dataclass(frozen=True)
class InverseEpisode:
    """An episode of D⁺ or D⁻. Its outcome is not read."""

    episode: Episode
    expert: bool
    weight: float
    """Of each of its turns."""
    after: Sequence[tuple[str, str]] = ()
    """Of an expert's episode: (action, reason) of a' at the state of each turn but the first."""


@dataclass(frozen=True)
class InverseSettings(TrainSettings):
    gamma: float = 0.95


@dataclass(frozen=True)
class InverseColumns(ScoreColumns, TrainColumns):
    """A score is read at the end of each decided turn, which has a loss weight, and of each branch, which has none."""

    next: Values
    """At a turn's end how many scores further on Q(s',a') stands; 0 at the last turn."""
    expert: Values
    """There, 1 for the expert's."""


def train_inverse(
    items: Sequence[InverseEpisode],
    renderer: Renderer,
    prm: PreTrainedModel,
    settings: InverseSettings,
    scratch: Path,
    held_out: Sequence[InverseEpisode],
) -> tuple[PreTrainedModel, dict]:
    """Train ``prm`` in place on D⁺ and D⁻. ``held_out``: episodes of other games, to validate on.

    Returns:
        The model, and the metrics of :func:`agentprm_core.training.trainer.fit` with ``validation``, see
        :func:`validate_inverse`.

    Raises:
        DataError: nothing to train on.
        ValueError: a resampled action too few or too many.
    """
    objective = prm_objective(partial(inverse, gamma=settings.gamma))
    rows = [inverse_row(item, renderer) for item in items]
    metrics = fit(EpisodeTrainer(prm, rows, objective, settings, scratch))
    metrics["validation"] = validate_inverse(prm, renderer, held_out, settings)
    return prm, metrics


def validate_inverse(
    prm: PreTrainedModel, renderer: Renderer, held_out: Sequence[InverseEpisode], settings: InverseSettings
) -> dict:
    """:func:`agentprm_core.prm.validation.validate` of σ(r) against who decided the turn. Its ``auc`` says how well
    the expert's turns are told from the learner's; at ½ the policy plays as the expert does."""
    rows = [inverse_row(item, renderer) for item in held_out]
    rewards, experts = [], []
    for row, q_M in zip(rows, score_rows(prm, rows, settings.batch_tokens)):
        batch = pack([row])
        logit_M = torch.from_numpy(np.clip(q_M, _EPSILON, 1 - _EPSILON)).logit()
        at_N, after_N, terminal_N = _places(batch)
        rewards.append(inverse_logits(logit_M[at_N], logit_M[after_N], terminal_N, gamma=settings.gamma).sigmoid())
        experts.append(batch.columns.expert[batch.columns.loss_weight > 0])
    expert_N = torch.cat(experts).numpy()
    return validate(torch.cat(rewards).numpy(), expert_N, expert_N > 0)


def inverse(logit_M: torch.Tensor, batch: Batch[InverseColumns], *, gamma: float) -> torch.Tensor:
    """Σ over turns of weight · BCE(σ(Q(s,a) − γ Q(s',a')), expert)."""
    at_N, after_N, terminal_N = _places(batch)
    turn = batch.columns.loss_weight > 0
    weight_N, expert_N = batch.columns.loss_weight[turn], batch.columns.expert[turn]
    mean = inverse_loss(logit_M[at_N], logit_M[after_N], terminal_N, expert_N, weight_N, gamma=gamma)
    return mean * weight_N.sum()


def inverse_row(item: InverseEpisode, renderer: Renderer) -> Row[InverseColumns]:
    """The episode, and a branch for each resampled action that the expert did not do.

    Raises:
        ValueError: an expert's episode without one resampled action a turn but the first; names the episode.
    """
    episode, turns = item.episode, item.episode.turns
    if item.expert and len(item.after) != episode.length - 1:
        raise ValueError(
            f"episode {episode.index} of {episode.game_id}: {len(item.after)} resampled actions for "
            f"{episode.length} turns; every turn but the first needs one"
        )
    rendered = renderer.episode(turns)
    columns = InverseColumns.zeros(len(rendered.input_ids))
    branches: list[tuple[int, tuple[int, ...], InverseColumns]] = []
    for turn in range(episode.start, episode.length):
        end = rendered.action_ends[turn]
        columns.loss_weight[end], columns.is_scored[end], columns.expert[end] = item.weight, 1.0, item.expert
        columns.span[end] = end - rendered.action_starts[turn] + 1
        if turn + 1 == episode.length:
            continue
        columns.next[end] = 1.0
        following = turns[turn + 1]
        if item.expert and item.after[turn] != (following.action, following.reason):
            columns.next[end] = episode.length - turn + len(branches)
            tokens = action_tokens(renderer, *item.after[turn])
            own = InverseColumns.zeros(len(tokens))
            own.is_scored[-1], own.span[-1] = 1.0, len(tokens)
            branches.append((rendered.action_starts[turn + 1], tokens, own))
    return tree_row(rendered.input_ids, columns, branches)


def _places(batch: Batch[InverseColumns]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """[N] indices into the M scores of each turn's own and of its next, and whether there is no next."""
    scored = batch.columns.is_scored > 0
    at_N = torch.nonzero(batch.columns.loss_weight[scored] > 0)[:, 0]
    step_N = batch.columns.next[scored][at_N].long()
    return at_N, at_N + step_N, step_N == 0
