"""A process reward model from a policy: the same transformer, with one score a token instead of a vocabulary."""

from __future__ import annotations

import copy

import torch
from transformers import AutoModelForTokenClassification, PreTrainedModel


def new_prm(policy: PreTrainedModel) -> PreTrainedModel:
    """A token classifier with one label on the policy's own weights, starting at Q = ½ everywhere.

    The policy is left as it is. Without dropout, so that training on a tree and on plain rows are the same.
    """
    config = copy.deepcopy(policy.config)
    config.num_labels = 1
    config.classifier_dropout = 0.0
    prm = AutoModelForTokenClassification.from_config(config, dtype=policy.dtype)
    trunk = getattr(prm, prm.base_model_prefix)
    trunk.load_state_dict(getattr(policy, policy.base_model_prefix).state_dict())
    with torch.no_grad():
        for weight in prm.score.parameters():
            weight.zero_()
    return prm.to(policy.device)
