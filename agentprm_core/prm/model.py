"""A process reward model from a policy: the same transformer, with one score a token instead of a vocabulary.

    logit Q_φ(s, a) = w·h(s, a) + κ log π_φ(a | s)

h(s, a) is the hidden state at the action's end mark and π_φ what the trunk predicts through its transposed embedding,
as the policy it starts from does. Which action fits a state the policy knows before it acts, as a distribution; the
score is read after the action, where that is gone. κ = 0 (the papers) leaves the comparison to be learnt anew from
labels; with κ > 0 the trunk's log-likelihood is where the PRM starts from, and labels move it (ours).

Shapes: ``N`` packed tokens, ``M`` scored actions.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import torch

from agentprm_core.errors import DataError
from agentprm_core.policy.likelihood import action_log_likelihood
from agentprm_core.policy.models import adapter_of, embedding_of, without_adapter
from agentprm_core.training.attention import forward
from agentprm_core.training.columns import ScoreColumns
from agentprm_core.training.packing import Batch

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def new_prm(policy: PreTrainedModel, likelihood: float = 0.0) -> PreTrainedModel:
    """A token classifier with one label on the policy's own weights, starting at Q = ½ everywhere (at κ = 0).

    The policy is left as it is. One with a LoRA adapter gives a PRM with an adapter of the same shape, which starts as
    the policy's; adapter and score head are trained. Without dropout, so that training on trees and on plain rows are
    the same. ``likelihood``: κ, kept in the checkpoint's configuration, or with an adapter in its manifest.

    Raises DataError for κ > 0 where the embedding is not also the output, or has an adapter of its own.
    """
    from transformers import AutoModelForTokenClassification

    tuned, base = hasattr(policy, "peft_config"), without_adapter(policy)
    if likelihood and not reads_likelihood(policy):
        raise DataError(
            "likelihood needs a model whose embedding is also its output (tie_word_embeddings), and no adapter on the "
            "embedding: set critic.likelihood to 0"
        )
    config = copy.deepcopy(base.config)
    config.num_labels = 1
    config.likelihood = likelihood
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


def reads_likelihood(policy: PreTrainedModel) -> bool:
    """Whether a PRM of this policy can have κ > 0: its embedding is also its output, and an adapter, if there is one,
    leaves the embedding as it is."""
    return bool(policy.config.tie_word_embeddings) and not hasattr(embedding_of(policy), "base_layer")


def likelihood_alone(policy: PreTrainedModel) -> PreTrainedModel:
    """The control that learnt nothing: a PRM whose score is the policy's own likelihood. Its head is zero, so any κ > 0
    orders actions alike. Raises DataError where the policy has none to read (:func:`reads_likelihood`)."""
    return new_prm(policy, likelihood=1.0)


def likelihood_weight(prm: torch.nn.Module) -> float:
    """κ of a PRM, wrapped for several processes or not."""
    return float(getattr(getattr(prm, "module", prm).config, "likelihood", 0.0))


def action_logits(prm: torch.nn.Module, batch: Batch[ScoreColumns], *, head: bool = True) -> torch.Tensor:
    """(M,) logits of Q_φ where ``is_scored``, float32. Without ``head`` κ log π_φ alone, which leaves the value head
    without a gradient."""
    weight, columns = likelihood_weight(prm), batch.columns
    scored_N = columns.is_scored > 0
    if not weight:
        return forward(prm, batch).logits[0, scored_N, 0].float()
    out = forward(prm, batch, output_hidden_states=True)
    end_M = scored_N.nonzero()[:, 0]
    embedding_VW = embedding_of(cast("PreTrainedModel", getattr(prm, "module", prm))).weight
    spoken_M = action_log_likelihood(
        out.hidden_states[-1][0], embedding_VW, batch.input_ids, batch.parent, end_M, columns.span[end_M].long()
    )
    told_M = out.logits[0, scored_N, 0].float()
    # a head that took no part would be missing where several processes average gradients
    return (told_M if head else 0.0 * told_M) + weight * spoken_M


def _with_adapter_of(policy: PreTrainedModel, prm: PreTrainedModel) -> PreTrainedModel:
    from peft import get_peft_model

    adapter = adapter_of(policy)
    scoring = replace(adapter, task_type="TOKEN_CLS", modules_to_save=["score"], inference_mode=False)
    tuned = get_peft_model(prm, scoring)
    learnt = {name: weight for name, weight in policy.named_parameters() if ".lora_" in name}
    with torch.no_grad():
        for name, weight in tuned.named_parameters():
            if ".lora_" in name:
                weight.copy_(learnt[name])
    return cast("PreTrainedModel", tuned)  # as one that is loaded
