"""What methods share: the parameters of every update, and imitation of episodes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentprm_core.config import Count, LearningRate
from agentprm_core.improve.sft import SftSettings, train_sft
from agentprm_core.methods.base import Given, Updated
from agentprm_core.types import Episode


@dataclass(frozen=True, kw_only=True)
class UpdateConfig:
    """The parameters of every method."""

    name: str
    """The method."""
    learning_rate: LearningRate
    """At the start; it falls along a cosine."""
    steps: Count
    """Optimizer steps."""
    batch_tokens: Count
    """Of an optimizer step."""


def imitate(config: UpdateConfig, given: Given, kept: Sequence[Episode], replay: float) -> Updated:
    """Fine-tuning on the episodes ``kept``, and on demonstrations as a share ``replay`` of all, or all there are."""
    settings = SftSettings(
        **hardware_settings(config, given), steps=config.steps, observation_weight=given.observation_weight
    )
    demos = replayed(given, len(kept), replay)
    trainee = given.trainee
    model, figures = train_sft([*kept, *demos], trainee.renderer, trainee.model, settings, given.scratch)
    return Updated(model, {**figures, "imitated": len(kept), "demonstrations": len(demos)})


def replayed(given: Given, visited: int, share: float) -> list[Episode]:
    """The demonstrations that an update visits beside ``visited`` episodes: ``share`` of all, or all there are."""
    if not share:
        return []
    wanted = round(visited * share / (1 - share))
    demos = given.demonstrations
    return random.Random(given.seed).sample(demos, min(wanted, len(demos)))


def hardware_settings(config: UpdateConfig, given: Given, *, alone: bool = False) -> dict[str, Any]:
    """Keyword arguments of every trainer's settings."""
    return given.hardware.settings(
        learning_rate=config.learning_rate, batch_tokens=config.batch_tokens, seed=given.seed, alone=alone
    )
