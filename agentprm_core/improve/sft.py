"""Supervised fine-tuning on whole episodes: imitate the actions, and predict the world beside them.

Loss of an episode of L tokens: −Σ_l w_l log π(x_l | x_<l), with w = 1 on the action's tokens (its end mark included)
and ``observation_weight`` on the observations', divided by the batch's Σ w. Predicting what the world says teaches a
small policy to copy names and keep book, and leaves a world model behind.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from transformers import PreTrainedModel

from agentprm_core.policy.prompt import Renderer
from agentprm_core.training.packing import Row
from agentprm_core.training.trainer import EpisodeTrainer, Losses, TrainSettings, fit
from agentprm_core.types import Episode


@dataclass(frozen=True)
class SftSettings(TrainSettings):
    observation_weight: float = 0.5
    """Loss weight of an observation's token; an action's is 1."""


def train_sft(
    episodes: Iterable[Episode], renderer: Renderer, model: PreTrainedModel, settings: SftSettings, scratch: Path
) -> tuple[PreTrainedModel, dict]:
    """Train ``model`` in place on the turns its episodes' players decided (from ``Episode.start`` on).

    Returns:
        The model, and :func:`agentprm_core.training.trainer.fit`'s metrics; the curve also has ``action_loss`` and
        ``observation_loss`` (nats a token) and ``action_accuracy`` (share of action tokens that are the likeliest).

    Raises:
        ValueError: no episodes, or one longer than the model's context (names it).
    """
    rows = [sft_row(episode, renderer, model, settings.observation_weight) for episode in episodes]
    trainer = EpisodeTrainer(model, rows, sft_objective, settings, scratch, renderer.tokenizer.pad_token_id)
    return model, fit(trainer)


def sft_row(episode: Episode, renderer: Renderer, model: PreTrainedModel, observation_weight: float) -> Row:
    """The episode's tokens with the loss weight of predicting each; the first cannot be predicted."""
    rendered = renderer.episode(episode.turns)
    check_fits(len(rendered.input_ids), episode, model)
    is_action = np.array(rendered.is_action)
    weight = np.where(is_action, 1.0, observation_weight).astype(np.float32)
    given = rendered.action_ends[episode.start - 1] + 1 if episode.start else 1
    weight[:given] = 0.0
    columns = {"weight": weight, "is_action": is_action.astype(np.float32)}
    return Row(np.array(rendered.input_ids, dtype=np.int32), columns)


def check_fits(tokens: int, episode: Episode, model: PreTrainedModel) -> None:
    """Raises ValueError when an episode is longer than the model's context."""
    context = model.config.max_position_embeddings
    if tokens > context:
        raise ValueError(
            f"episode {episode.index} of {episode.game_id} has {tokens} tokens, the model's context is {context}"
        )


def sft_objective(model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> Losses:
    """Σ w·nll of one batch. ``nll_BL``: nats, of predicting token l from those before it."""
    logits_BLV = model(input_ids=batch["input_ids"], use_cache=False).logits[:, :-1]
    target_BL = batch["input_ids"][:, 1:]
    weight_BL, action_BL = batch["weight"][:, 1:], batch["is_action"][:, 1:]
    nll_BL = F.cross_entropy(logits_BLV.float().transpose(1, 2), target_BL, reduction="none")
    decided_BL = action_BL * (weight_BL > 0)
    seen_BL = (1 - action_BL) * (weight_BL > 0)
    with torch.no_grad():
        right_BL = (logits_BLV.argmax(-1) == target_BL) * decided_BL
        metrics = {
            "action_loss": ((nll_BL * decided_BL).sum(), decided_BL.sum()),
            "observation_loss": ((nll_BL * seen_BL).sum(), seen_BL.sum()),
            "action_accuracy": (right_BL.sum(), decided_BL.sum()),
        }
    return Losses((nll_BL * weight_BL).sum(), metrics)
