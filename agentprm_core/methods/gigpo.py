"""GiGPO (Feng et al. 2025, arXiv 2505.10978): the trajectory's advantage, and that of the turn among those in its
state.

**What it learns from.** The rollouts of π_{i−1}, several episodes a game: A = A^E + ω A^S. A^E is GRPO's. A^S compares
what the game's episodes did in the same ("anchor") state, by their discounted returns.

Where a state came once there is nothing to compare. ``alone: zero`` leaves A^S at 0 there, as in the paper, and no PRM
takes part. ``alone: prm`` (ours) has the PRM say what the turn was worth: its progress
Q(s_t,a_t) − Q(s_{t−1},a_{t−1})/γ (paper B's advantage), standardised over all such turns of the game. That follows the
PRM, so it must have shown what ``critic.require`` asks.

**How it updates.** As :mod:`agentprm_core.methods.grpo`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

from agentprm_core.config import Discount, NotNegative
from agentprm_core.credit.group import anchors_alone, gigpo_advantages, progress
from agentprm_core.credit.turns import Turns, turns_from_table
from agentprm_core.datasets import episodes_from_table
from agentprm_core.methods.base import Collected, Given, Updated
from agentprm_core.methods.gradient import Credit, GradientConfig, Rule, collected, follow, turns_of
from agentprm_core.methods.trust import trusted
from agentprm_core.prm.score import score_episodes
from agentprm_core.types import Episode


@dataclass(frozen=True, kw_only=True)
class Config(GradientConfig):
    """Parameters of ``method.name: gigpo``."""

    omega: NotNegative
    """ω: the weight of the step's advantage."""
    gamma: Discount
    """Discount of the returns that A^S compares; with ``alone: prm`` the critic's own (``critic.gamma``)."""
    visit_key: Literal["state", "history"]
    """What counts as the same state."""
    alone: Literal["zero", "prm"]
    """A^S of a turn in a state that came once: 0, or what the PRM says of the turn."""


def collect(config: Config, given: Given) -> Collected:
    """Rows of ADVANTAGES. With ``alone: prm`` raises DataError for a PRM that may not be followed."""
    shown = trusted(given, given.require) if config.alone == "prm" else {}
    turns = turns_of(given)
    found = collected(turns, _advantages(config, given, turns, lambda: given.episodes))
    found.figures.update(shown, alone=float(anchors_alone(turns, config.visit_key)[turns.decided_N].mean()))
    return found


def update(config: Config, given: Given) -> Updated:
    """The clipped update."""
    return follow(config, given, Rule(partial(_credit, config, given), beta=config.beta))


def _credit(config: Config, given: Given, table: pa.Table, time: int, path: Path) -> Credit:
    turns = turns_from_table(table)
    return Credit(_advantages(config, given, turns, lambda: list(episodes_from_table(table))))


def _advantages(config: Config, given: Given, turns: Turns, episodes) -> np.ndarray:
    progress_N = None
    if config.alone == "prm":
        progress_N = progress(turns, _scores(given, episodes()), gamma=config.gamma)
    how = {"gamma": config.gamma, "omega": config.omega, "visit_key": config.visit_key}
    return gigpo_advantages(turns, **how, progress_N=progress_N)


def _scores(given: Given, episodes: list[Episode]) -> np.ndarray:
    prm = given.prm
    scores = score_episodes(prm.model, prm.renderer, episodes, given.hardware.pass_tokens)
    return np.concatenate(scores).astype(np.float64)
