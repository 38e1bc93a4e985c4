"""An implicit process reward model: step rewards from preferences between whole episodes (iStar, arXiv 2509.19199).

    r_φ(s,a) = β [log π_φ(a|s) − log π_old(a|s)]
    L(φ) = −log σ(Σ_{t∈τ⁺} r_φ(s_t,a_t) − Σ_{t∈τ⁻} r_φ(s_t,a_t))        τ⁺ ended better than τ⁻

π_φ is a language model that starts as the policy. π_old played the episodes. This is DPO with episodes as answers, and
the tokens of decided actions alone count. The probabilities of both are those that play draws by: among the admissible
commands where it is constrained (:mod:`agentprm_core.improve.choices`), else over the whole vocabulary.

Shapes: ``P`` action tokens, ``R`` rows of a batch (two a pair, the better one first), ``T`` turns of an episode.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F

from agentprm_core.improve.choices import Choices
from agentprm_core.improve.decided import DecidedColumns, by_turn, decided_row, with_old
from agentprm_core.policy.decoding import Constrained
from agentprm_core.policy.models import Checkpoint
from agentprm_core.training.columns import joined
from agentprm_core.training.packing import Batch, Row, pack
from agentprm_core.training.settings import TrainSettings
from agentprm_core.training.trainer import Batches, EpisodeTrainer, Losses, fit
from agentprm_core.types import Episode

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class ImplicitSettings(TrainSettings):
    beta: float = 0.05
    """Scale of the rewards."""


@dataclass(frozen=True)
class PlayedRows:
    """Episodes with what π_old says of their actions."""

    rows: Sequence[Row[DecidedColumns]]
    """One an episode."""
    choices: Choices
    """The sets of tokens that the rows speak of."""


def played_rows(
    episodes: Sequence[Episode], policy: Checkpoint, decoding: Constrained | None, batch_tokens: int
) -> PlayedRows:
    """The episodes with what ``policy``, which played them as ``decoding`` says (None: freely), says of their
    actions."""
    choices = Choices()
    rows = [decided_row(episode, policy, DecidedColumns, choices, decoding)[0] for episode in episodes]
    return PlayedRows(with_old(policy.model, rows, batch_tokens, choices.logits), choices)


def preferred_pairs(episodes: Sequence[Episode]) -> list[tuple[int, int]]:
    """Numbers of (better, worse) episodes of one game: each that ended above its game's mean with one that ended below,
    and the other way round, so that each such episode is in a pair.

    ``episodes`` of one game stand together. None where the episodes of every game ended alike.
    """
    found: list[tuple[int, int]] = []
    for _, group in groupby(range(len(episodes)), key=lambda i: episodes[i].game_id):
        numbers = list(group)
        mean = sum(episodes[i].reward for i in numbers) / len(numbers)
        better = [i for i in numbers if episodes[i].reward > mean + 1e-9]
        worse = [i for i in numbers if episodes[i].reward < mean - 1e-9]
        if better:
            count = max(len(better), len(worse))
            found += [(better[k % len(better)], worse[k % len(worse)]) for k in range(count)]
    return found


def train_implicit(
    model: PreTrainedModel,
    played: PlayedRows,
    pairs: Sequence[tuple[int, int]],
    settings: ImplicitSettings,
    scratch: Path,
) -> dict:
    """Train π_φ in place on pairs of numbers of the rows. Returns :func:`agentprm_core.training.trainer.fit`'s metrics;
    the curve also has ``accuracy``, the share of pairs whose better episode earns more."""
    return fit(ImplicitTrainer(model, played, pairs, settings, scratch))


def step_rewards(
    model: PreTrainedModel, played: PlayedRows, episodes: Sequence[Episode], beta: float, batch_tokens: int
) -> list[np.ndarray]:
    """r_φ of each episode's T turns, float64; 0 at replayed ones and at those without an alternative. ``played``: of
    ``episodes``."""
    found = []
    said = with_old(model, played.rows, batch_tokens, played.choices.logits)
    for row, now, episode in zip(played.rows, said, episodes, strict=True):
        ratio_L = (now.columns.old - row.columns.old).astype(np.float64)
        ends = np.flatnonzero(row.columns.is_end)
        sums = np.diff(np.cumsum(ratio_L)[ends], prepend=0.0)  # no other token has a ratio
        found.append(by_turn(episode, beta * sums))
    return found


def copied(model: PreTrainedModel) -> PreTrainedModel:
    """A model of the same weights, to be trained apart from it."""
    twin = copy.deepcopy(model)
    twin.__dict__.pop("forward", None)  # a training of ``model`` that is under way may have put its own there
    return twin


class ImplicitTrainer(EpisodeTrainer[ImplicitSettings]):
    """Its rows are pairs: two episodes, which are read as two rows of a batch."""

    def __init__(
        self,
        model: PreTrainedModel,
        played: PlayedRows,
        pairs: Sequence[tuple[int, int]],
        settings: ImplicitSettings,
        scratch: Path,
    ) -> None:
        rows = played.rows
        self._halves = [tuple(_weighed([rows[better], rows[worse]])) for better, worse in pairs]
        whole = [
            Row(np.concatenate([half.input_ids for half in pair]), joined([half.columns for half in pair]))
            for pair in self._halves
        ]
        objective = partial(implicit_objective, beta=settings.beta, choices=played.choices)
        super().__init__(model, whole, objective, settings, scratch)

    def batches(self, step: int) -> Batches:
        device = self.processes.device
        return [pack([half for i in numbers for half in self._halves[i]]).to(device) for numbers in self.due(step)]


def implicit_objective(model: torch.nn.Module, batch: Batch[DecidedColumns], beta: float, choices: Choices) -> Losses:
    """Σ over pairs of −log σ of the difference of their episodes' rewards."""
    decided_N = batch.columns.decided > 0
    logits_PV = choices.logits(model, batch, decided_N)
    log_prob_P = -F.cross_entropy(logits_PV, batch.input_ids[decided_N], reduction="none")
    ratio_P, row_P = log_prob_P - batch.columns.old[decided_N], batch.row[decided_N]
    reward_R = beta * ratio_P.new_zeros(int(batch.row.max()) + 1).index_add(0, row_P, ratio_P)
    margin = reward_R[0::2] - reward_R[1::2]
    return Losses(F.softplus(-margin).sum(), {"accuracy": ((margin > 0).float().sum(), margin.numel())})


def _weighed(pair: Sequence[Row[DecidedColumns]]) -> Iterator[Row[DecidedColumns]]:
    """The better episode's last token has the pair's loss weight."""
    for number, row in enumerate(pair):
        weight = np.zeros(len(row), np.float32)
        weight[-1] = float(number == 0)
        yield replace(row, columns=replace(row.columns, loss_weight=weight))
