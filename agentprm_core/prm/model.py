"""A process reward model from a policy: the same transformer, with one score a token instead of a vocabulary."""

from __future__ import annotations

import copy
from dataclasses import replace

import torch
from transformers import AutoModelForTokenClassification, PreTrainedModel


def new_prm(policy: PreTrainedModel) -> PreTrainedModel:
    """A token classifier with one label on the policy's own weights, starting at Q = ½ everywhere.

    The policy is left as it is. One with a LoRA adapter gives a PRM with an adapter of the same shape, which starts as
    the policy's; adapter and score head are trained. Without dropout, so that training on trees and on plain rows are
    the same.
    """
    tuned = hasattr(policy, "peft_config")
    base = policy.get_base_model() if tuned else policy
    config = copy.deepcopy(base.config)
    config.num_labels = 1
    config.classifier_dropout = 0.0
    prm = AutoModelForTokenClassification.from_config(config, dtype=base.dtype)
    trunk = getattr(base, base.base_model_prefix).state_dict()
    plain = {name.replace(".base_layer", ""): weight for name, weight in trunk.items() if ".lora_" not in name}
    getattr(prm, prm.base_model_prefix).load_state_dict(plain)
    with torch.no_grad():
        for weight in prm.score.parameters():
            weight.zero_()
    prm.to(base.device)
    return _with_adapter_of(policy, prm) if tuned else prm


def _with_adapter_of(policy: PreTrainedModel, prm: PreTrainedModel) -> PreTrainedModel:
    from peft import get_peft_model

    adapter = policy.peft_config["default"]
    scoring = replace(adapter, task_type="TOKEN_CLS", modules_to_save=["score"], inference_mode=False)
    tuned = get_peft_model(prm, scoring)
    learnt = {name: weight for name, weight in policy.named_parameters() if ".lora_" in name}
    with torch.no_grad():
        for name, weight in tuned.named_parameters():
            if ".lora_" in name:
                weight.copy_(learnt[name])
    return tuned
