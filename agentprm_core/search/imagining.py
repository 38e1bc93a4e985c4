"""The world model that ``lookahead`` looks ahead with: trained on rollouts, checked on held-out games.

It starts at the policy that is measured, which has learnt to predict the world beside its actions, and goes on with the
settings of the fine-tuning on the rollouts of the PRM that chooses.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from agentprm_core.credit.split import validation_games
from agentprm_core.improve.sft import SftSettings
from agentprm_core.policy.models import Checkpoint, playing_dtype
from agentprm_core.search.playing import MAX_OBSERVATION_TOKENS
from agentprm_core.search.world_model import LearntModel, observation_accuracy, train_world_model
from agentprm_core.training.trainer import hash_tensors
from agentprm_core.types import Episode

_CHECKED = 64
"""Held-out episodes that observations are imagined of."""


def imagined_world(
    policy: Checkpoint,
    episodes: Sequence[Episode],
    settings: SftSettings,
    scratch: Path,
    *,
    validation_share: float,
    campaign_seed: int,
) -> tuple[Checkpoint, dict]:
    """The model, which ``policy`` (in float32) becomes, and its figures: ``observation_loss`` and
    ``observation_accuracy`` of the tokens at the end of training, and ``held_out``
    (:func:`agentprm_core.search.world_model.observation_accuracy`)."""
    train, held_out = _sides(episodes, validation_share, campaign_seed)
    model, metrics = train_world_model(train, policy.renderer, policy.model, settings, scratch)
    dtype = playing_dtype(settings.precision)
    model.eval().to(dtype)  # pyright: ignore[reportArgumentType]: transformers wraps it
    weights = hashlib.sha256()
    hash_tensors(weights, model.state_dict())
    world = Checkpoint(model, policy.tokenizer, policy.renderer, weights.hexdigest())
    checked = held_out[:_CHECKED]
    context = model.config.max_position_embeddings
    learnt = LearntModel(world, slots=2 * len(checked), context=context, max_observation_tokens=MAX_OBSERVATION_TOKENS)
    last = {name: metrics["curve"][-1][name] for name in ("observation_loss", "observation_accuracy")}
    return world, {**last, "held_out": observation_accuracy(learnt, policy.renderer, checked)}


def _sides(episodes: Sequence[Episode], share: float, seed: int) -> tuple[list[Episode], list[Episode]]:
    """Training episodes, and the first episode of each held-out game."""
    ids = sorted({episode.game_id for episode in episodes})
    held_out = dict(zip(ids, validation_games(ids, share, seed)))
    train = [episode for episode in episodes if not held_out[episode.game_id]]
    return train, [episode for episode in episodes if held_out[episode.game_id] and episode.index == 0]
