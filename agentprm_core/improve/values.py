"""A critic V(s) by turn: a linear head on the policy's trunk, read where an action begins (PPO).

The head starts as the ridge regression of the returns of π_{i−1}'s rollouts on the trunk's hidden states, so that the
first advantages are already compared with something. From there it is trained with the policy, on a trunk that its loss
does not change.

Shapes: ``N`` states, ``W`` width of the model, ``T`` turns of an episode.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from agentprm_core.improve.decided import DecidedColumns, by_turn, decided_row, state_features
from agentprm_core.improve.policy_gradient import HEAD
from agentprm_core.policy.models import Checkpoint
from agentprm_core.types import Episode

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_RIDGE = 0.01
"""Weight of the squared weights, in units of the features' mean variance: a large weight on what hardly differs would
make values jump as soon as the trunk moves."""


def fitted_head(
    policy: Checkpoint, episodes: Sequence[Episode], returns: Sequence[np.ndarray], batch_tokens: int
) -> nn.Linear:
    """The head whose values come nearest to ``returns`` (T each) at the decided turns of ``episodes``."""
    features = np.concatenate(_features(policy, episodes, batch_tokens)).astype(np.float64)
    target_N = np.concatenate([of_episode[episode.start :] for episode, of_episode in zip(episodes, returns)])
    centre_W, mean = features.mean(0), target_N.mean()
    x_NW = features - centre_W
    ridge = _RIDGE * x_NW.var(0).mean() + 1e-9
    gram_WW = x_NW.T @ x_NW / len(x_NW) + ridge * np.eye(len(centre_W))
    weight_W = np.linalg.solve(gram_WW, x_NW.T @ (target_N - mean) / len(x_NW))
    head = nn.Linear(len(weight_W), 1)
    with torch.no_grad():
        head.weight.copy_(torch.from_numpy(weight_W)[None])
        head.bias.fill_(float(mean - weight_W @ centre_W))
    return head.to(policy.model.device)


@torch.no_grad()
def state_values(
    policy: Checkpoint, head: nn.Module, episodes: Sequence[Episode], batch_tokens: int
) -> list[np.ndarray]:
    """V(s_t) of each episode's T turns, float64; 0 at replayed ones."""
    device, found = policy.model.device, []
    for episode, features in zip(episodes, _features(policy, episodes, batch_tokens)):
        value = head(torch.from_numpy(features).to(device))[:, 0].double().cpu().numpy()
        found.append(by_turn(episode, value))
    return found


@contextmanager
def headed(model: PreTrainedModel, head: nn.Module) -> Iterator[None]:
    """Within the block the model has the head, to be trained with it."""
    setattr(model, HEAD, head)
    try:
        yield
    finally:
        delattr(model, HEAD)


def _features(policy: Checkpoint, episodes: Sequence[Episode], batch_tokens: int) -> list[np.ndarray]:
    rows = [decided_row(episode, policy, DecidedColumns)[0] for episode in episodes]
    return state_features(policy.model, rows, batch_tokens)
