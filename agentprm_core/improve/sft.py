"""Supervised fine-tuning on whole episodes: imitate the actions, and predict the world beside them.

Loss of an episode of L tokens: −Σ_l w_l log π(x_l | x_<l), with w = 1 on the action's tokens (its end mark included)
and ``observation_weight`` on the observations', divided by the batch's Σ w. Predicting what the world says teaches a
small policy to copy names and keep book, and leaves a world model behind.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from agentprm_core.errors import DataError
from agentprm_core.policy.prompt import Renderer
from agentprm_core.training.attention import log_probs
from agentprm_core.training.columns import TrainColumns, Values
from agentprm_core.training.launch import fit
from agentprm_core.training.packing import Batch, Row
from agentprm_core.training.settings import TrainSettings
from agentprm_core.training.trainer import EpisodeTrainer, Losses
from agentprm_core.types import Episode

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class SftSettings(TrainSettings):
    observation_weight: float = 0.5
    """Loss weight of an observation's token."""
    action_weight: float = 1.0
    """Of an action's; 0 trains a world model (:mod:`agentprm_core.search.world_model`)."""


@dataclass(frozen=True)
class SftColumns(TrainColumns):
    is_action: Values
    """1 on the tokens of actions, their end marks included."""


def train_sft(
    episodes: Iterable[Episode], renderer: Renderer, model: PreTrainedModel, settings: SftSettings, scratch: Path
) -> tuple[PreTrainedModel, dict]:
    """Train ``model`` in place on the turns its episodes' players decided (from ``Episode.start`` on).

    Returns:
        The model, and :func:`agentprm_core.training.trainer.fit`'s metrics; the curve also has ``action_loss`` and
        ``observation_loss`` (nats a token), ``action_accuracy`` and ``observation_accuracy`` (shares of tokens that are
        the likeliest); where neither has weight they are left out.

    Raises:
        DataError: no episodes, or one longer than the model's context (names it).
    """
    weights = settings.observation_weight, settings.action_weight
    rows = [sft_row(episode, renderer, model, *weights) for episode in episodes]
    return model, fit(EpisodeTrainer(model, rows, sft_objective, settings, scratch))


def sft_row(
    episode: Episode,
    renderer: Renderer,
    model: PreTrainedModel,
    observation_weight: float,
    action_weight: float = 1.0,
) -> Row[SftColumns]:
    """The episode's tokens with the loss weight of predicting each; the first cannot be predicted."""
    rendered = renderer.episode(episode.turns)
    check_fits(len(rendered.input_ids), episode, model)
    is_action = np.array(rendered.is_action)
    weight = np.where(is_action, action_weight, observation_weight).astype(np.float32)
    given = rendered.action_ends[episode.start - 1] + 1 if episode.start else 1
    weight[:given] = 0.0
    return Row(np.array(rendered.input_ids, dtype=np.int32), SftColumns(weight, is_action.astype(np.float32)))


def check_fits(tokens: int, episode: Episode, model: PreTrainedModel) -> None:
    """Raises DataError when an episode is longer than the model's context."""
    context = model.config.max_position_embeddings
    if tokens > context:
        raise DataError(
            f"episode {episode.index} of {episode.game_id} has {tokens} tokens, the model's context is {context}; "
            "raise model.context, or end episodes sooner (env.max_turns)"
        )


def sft_objective(model: torch.nn.Module, batch: Batch[SftColumns]) -> Losses:
    """Σ w·nll of one packed batch, over its P tokens that have a weight. ``nll_P``: nats."""
    loss_weight_N = batch.columns.loss_weight
    weighted_N = loss_weight_N > 0
    log_prob_P, likeliest_P = log_probs(model, batch, weighted_N)
    nll_P, action_P = -log_prob_P, batch.columns.is_action[weighted_N]
    seen = nll_P.detach()
    metrics = {
        "action_loss": ((seen * action_P).sum(), action_P.sum()),
        "observation_loss": ((seen * (1 - action_P)).sum(), (1 - action_P).sum()),
        "action_accuracy": ((likeliest_P * action_P).sum(), action_P.sum()),
        "observation_accuracy": ((likeliest_P * (1 - action_P)).sum(), (1 - action_P).sum()),
    }
    return Losses((nll_P * loss_weight_N[weighted_N]).sum(), metrics)
