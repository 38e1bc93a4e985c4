"""PPO (Schulman et al. 2017) with a learnt critic by turn.

**What it learns from.** The rollouts of π_{i−1}, one episode a game or more. A critic V(s_t) says before each action
how the episode will end. The turn's advantage is GAE's (Schulman et al. 2016):

    δ_t = γ V(s_{t+1}) − V(s_t),  δ_{T−1} = R − V(s_{T−1}),    Â_t = Σ_k (γλ)^k δ_{t+k}

No PRM takes part; the critic is the update's own.

**How it updates.** The clipped surrogate with the ratio of each action token, a KL to π_{i−1} of weight ``beta`` (0:
none), and c ½ (V(s_t) − Â_t − V_old(s_t))². With ``refresh`` the policy plays anew every few steps, which are several
passes over these episodes.

The critic is a linear head on the policy's own trunk (:mod:`agentprm_core.improve.values`). It starts as a ridge
regression of the rollouts' returns, is trained with the policy, and is gone when the update ends. Departs from usual
implementations in that its loss does not change the trunk, and that advantages are not standardised and V's loss is not
clipped: the gradient's length is limited instead, as everywhere here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from torch import nn

from agentprm_core.config import Discount, NotNegative, Positive, ShareOrAll
from agentprm_core.credit.monte_carlo import returns
from agentprm_core.credit.state_values import state_gae
from agentprm_core.credit.turns import turns_from_table
from agentprm_core.datasets import episodes_from_table, read_table
from agentprm_core.improve.policy_gradient import HEAD
from agentprm_core.improve.values import fitted_head, headed, state_values
from agentprm_core.methods.base import Collected, Given, Updated
from agentprm_core.methods.gradient import (
    ClippedConfig,
    Credit,
    Rule,
    collected,
    experience_of,
    follow_these,
    turns_of,
)
from agentprm_core.types import ADVANTAGES, EPISODES, Episode

_FITTED = 512
"""Episodes that the first critic is fitted to, at the most."""
CREDITED = ADVANTAGES.append(pa.field("target", pa.float64()))
"""One row a turn of EPISODES, same order: its advantage, and what V of its state is to be."""


@dataclass(frozen=True, kw_only=True)
class Config(ClippedConfig):
    """Parameters of ``method.name: ppo``."""

    beta: NotNegative
    """Weight of the KL to π_{i−1}; 0: none."""
    gamma: Discount
    """Discount of a return, a turn."""
    gae_lambda: ShareOrAll
    """λ: 1 compares the return with V, 0 looks one turn ahead."""
    value_weight: Positive
    """c: weight of the critic's loss."""


def collect(config: Config, given: Given) -> Collected:
    """Rows of CREDITED, by the first critic."""
    turns, tokens = turns_of(given), given.hardware.pass_tokens
    head = _first_critic(config, given)
    value_N = np.concatenate(state_values(given.trainee, head, given.episodes, tokens))
    advantage_N, target_N = state_gae(turns, value_N, gamma=config.gamma, gae_lambda=config.gae_lambda)
    found = collected(turns, advantage_N)
    return_N = returns(turns, gamma=config.gamma, outcome="binary")
    return_D, value_D = return_N[turns.decided_N], value_N[turns.decided_N]
    explained = 1 - np.var(return_D - value_D) / max(np.var(return_D), 1e-12)
    found.figures.update(value_mean=float(value_D.mean()), explained=float(explained))
    return Collected(found.table.append_column("target", pa.array(target_N)), found.figures, found.checks)


def update(config: Config, given: Given) -> Updated:
    """The clipped update, and the critic's."""
    rows = read_table(given.folders.collected, CREDITED)
    credit = Credit(rows["advantage"].to_numpy(), rows["target"].to_numpy())
    rule = Rule(partial(_credit, config, given), level="token", beta=config.beta, value_weight=config.value_weight)
    with headed(given.trainee.model, _first_critic(config, given)):
        return follow_these(config, given, rule, experience_of(given.episodes, credit), alone=True)


def _first_critic(config: Config, given: Given) -> nn.Linear:
    """Fitted to the returns of the rollouts, or of some of them."""
    turns, episodes = turns_of(given), given.episodes
    return_N = returns(turns, gamma=config.gamma, outcome="binary")
    by_episode = np.split(return_N, turns.starts_E[1:])
    step = -(-len(episodes) // _FITTED)
    return fitted_head(given.trainee, episodes[::step], by_episode[::step], given.hardware.pass_tokens)


def _credit(config: Config, given: Given, table: pa.Table, time: int, path: Path) -> Credit:
    """By the critic as it is now."""
    episodes: list[Episode] = list(episodes_from_table(table.select(EPISODES.names)))
    head = getattr(given.trainee.model, HEAD)
    value_N = np.concatenate(state_values(given.trainee, head, episodes, given.hardware.pass_tokens))
    how = {"gamma": config.gamma, "gae_lambda": config.gae_lambda}
    return Credit(*state_gae(turns_from_table(table), value_N, **how))
