"""The world model that the decoding ``lookahead`` looks ahead with: trained on rollouts, checked on the held-out games.

It starts at the policy that is measured, which has learnt to predict the world beside its actions, and goes on with the
settings of the fine-tuning on the rollouts of the PRM that chooses.
"""

from __future__ import annotations

import hashlib

from agentprm_core.credit.split import validation_games
from agentprm_core.datasets import episodes_from_table, read_table
from agentprm_core.improve.sft import SftSettings
from agentprm_core.policy.models import Checkpoint, load_checkpoint
from agentprm_core.search.world_model import LearntModel, observation_accuracy, train_world_model
from agentprm_core.training.trainer import hash_tensors
from agentprm_core.types import EPISODES, Episode
from tasks.frame import layout
from tasks.frame.compute import playing_dtype, training_settings
from tasks.frame.stage import Stage
from tasks.playing import MAX_OBSERVATION_TOKENS

_CHECKED = 64
"""Held-out episodes that observations are imagined of."""


def world_model(stage: Stage) -> tuple[Checkpoint, dict]:
    """The model, and its figures: ``observation_loss`` and ``observation_accuracy`` of the tokens at the end of
    training, and ``held_out`` (:func:`agentprm_core.search.world_model.observation_accuracy`)."""
    section, device = stage.params.evaluate.lookahead, stage.params.compute.device
    policy = load_checkpoint(layout.policy(stage.iteration), device=device)
    train, held_out = _sides(stage)
    settings = SftSettings(**training_settings(stage, stage.params.sft), epochs=section.epochs)
    model, metrics = train_world_model(train, policy.renderer, policy.model, settings, stage.scratch / "world")
    model = model.eval().to(playing_dtype(stage.params.compute))
    weights = hashlib.sha256()
    hash_tensors(weights, model.state_dict())
    world = Checkpoint(model, policy.tokenizer, policy.renderer, weights.hexdigest())
    checked = held_out[:_CHECKED]
    context = model.config.max_position_embeddings
    learnt = LearntModel(world, slots=2 * len(checked), context=context, max_observation_tokens=MAX_OBSERVATION_TOKENS)
    last = {name: metrics["curve"][-1][name] for name in ("observation_loss", "observation_accuracy")}
    return world, {**last, "held_out": observation_accuracy(learnt, policy.renderer, checked)}


def _sides(stage: Stage) -> tuple[list[Episode], list[Episode]]:
    """Training episodes, and the first episode of each held-out game."""
    path = layout.episodes(stage.params.policies[str(stage.iteration)].prm)
    episodes = list(episodes_from_table(read_table(path, EPISODES)))
    ids = sorted({episode.game_id for episode in episodes})
    held_out = dict(zip(ids, validation_games(ids, stage.params.label.validation_share, stage.params.seed)))
    train = [episode for episode in episodes if not held_out[episode.game_id]]
    return train, [episode for episode in episodes if held_out[episode.game_id] and episode.index == 0]
