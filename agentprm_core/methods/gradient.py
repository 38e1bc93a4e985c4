"""What policy gradients without a critic share: advantages as a dataset, and the clipped update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pyarrow as pa

from agentprm_core.config import Positive, Range
from agentprm_core.credit.turns import Turns, read_turns
from agentprm_core.datasets import read_table
from agentprm_core.improve.policy_gradient import GradientSettings, train_policy_gradient
from agentprm_core.methods.base import Collected, Given, Updated
from agentprm_core.methods.update_base import UpdateConfig, hardware_settings
from agentprm_core.suites import advantages_suite
from agentprm_core.types import ADVANTAGES


@dataclass(frozen=True, kw_only=True)
class GradientConfig(UpdateConfig):
    """The parameters of every policy gradient."""

    beta: Positive
    """Weight of the KL to π_{i−1}."""
    clip: Annotated[float, Range(gt=0, lt=1)]
    """ε: how far a turn's probability ratio may move before it stops counting."""


def turns_of(given: Given) -> Turns:
    """The turns of this iteration's rollouts."""
    return read_turns(given.folders.rollouts[-1])


def collected(turns: Turns, advantage_N: np.ndarray) -> Collected:
    """Rows of ADVANTAGES."""
    table = pa.table(
        {
            "game_id": pa.array(turns.games).take(pa.array(turns.game_N)),
            "episode": turns.episode_N,
            "turn": turns.turn_N,
            "advantage": advantage_N,
        },
        schema=ADVANTAGES,
    )
    figures = {
        "episodes": len(turns.won_E),
        "turns": len(turns.turn_N),
        "told": float(np.mean(advantage_N != 0)),
        "std": float(advantage_N.std()),
    }
    return Collected(table, figures, advantages_suite(table))


def follow(config: GradientConfig, given: Given) -> Updated:
    """The clipped update by the advantages that were collected."""
    advantages = read_table(given.folders.collected, ADVANTAGES)["advantage"].to_numpy()
    ends = np.cumsum([episode.length for episode in given.episodes])
    settings = GradientSettings(
        **hardware_settings(config, given), steps=config.steps, beta=config.beta, clip=config.clip
    )
    model, figures = train_policy_gradient(
        given.episodes, np.split(advantages, ends[:-1]), given.trainee, settings, given.scratch
    )
    return Updated(model, figures)
