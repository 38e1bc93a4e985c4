"""Where a policy starts: a model from scratch, or a published one, with or without a LoRA adapter."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

from torch import nn

from agentprm_core.config import Count, CountOrNone, Range
from agentprm_core.errors import DataError
from agentprm_core.policy.models import Checkpoint, load_checkpoint, new_model
from agentprm_core.policy.prompt import make_renderer
from agentprm_core.policy.tokenizer import train_tokenizer
from agentprm_core.types import Episode
from agentprm_core.worlds import WorldSpec

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ActionTokens = Annotated[int, Range(ge=2)]
Constrained = Literal[True, False, "served"]


@dataclass(frozen=True)
class Heads:
    """Attention heads, some of which start as previous-token heads (:mod:`agentprm_core.policy.previous_token`)."""

    count: Count
    """Query heads; half as many key-value heads."""
    previous_token: CountOrNone
    """Of the first layer: those that start by looking 1, 2, … tokens back, which copying needs."""

    def __post_init__(self) -> None:
        if self.previous_token > self.count:
            raise ValueError(f"previous_token: {self.previous_token} is not allowed: at most count, {self.count}")


@dataclass(frozen=True)
class ScratchModel:
    """A Llama-architecture model of random weights, and a tokenizer of what the demonstrations say."""

    source: Literal["scratch"]
    """No weights are loaded."""
    width: Count
    """Of the hidden states."""
    layers: Count
    """Decoder layers."""
    heads: Count | Heads
    """Query heads; half as many key-value heads. A section: with some that look back."""
    context: Count
    """Tokens of a whole episode."""
    max_action_tokens: ActionTokens
    """Of one action."""
    constrained: Constrained
    """true: draw from the admissible commands only. false: freely. served: freely, and servers (AGENTPRM_SERVERS)
    play all but searches and branches."""
    optimizer: Literal["adamw", "muon"]
    """Of every training of it."""

    gradient_checkpointing = False
    reason_tokens = 0

    def __post_init__(self) -> None:
        count = self._heads.count
        if self.width % count or self.width // count % 2:
            raise ValueError(
                f"heads: {count} is not allowed: a divisor of width, {self.width}, which leaves heads of an even size"
            )

    @property
    def sizes(self) -> dict[str, int]:
        """The keyword arguments of :func:`agentprm_core.policy.models.new_model`."""
        count = self._heads.count
        kv_heads = max(1, count // 2)
        return {
            "width": self.width,
            "layers": self.layers,
            "heads": count,
            "kv_heads": kv_heads if count % kv_heads == 0 else count,
            "context": self.context,
            "previous_token_heads": self._heads.previous_token,
        }

    @property
    def _heads(self) -> Heads:
        return self.heads if isinstance(self.heads, Heads) else Heads(self.heads, 0)


@dataclass(frozen=True)
class Lora:
    """A low-rank adapter: the base's weights stay as they are."""

    rank: Count
    """Of each adapter matrix."""
    alpha: Count
    """The adapter is scaled by alpha / rank."""
    modules: tuple[str, ...]
    """Names of the linear layers that are adapted."""


@dataclass(frozen=True)
class PublishedModel:
    """A model in a folder or on the Hugging Face hub, spoken with by its own chat template."""

    source: str
    """A folder, or an id on the hub."""
    revision: str | None
    """Which weights: a commit on the hub; of a folder, the digest that its weights must have. null: those there are."""
    context: Count
    """Tokens of a whole episode."""
    max_action_tokens: ActionTokens
    """Reason and command."""
    constrained: Constrained
    """true: draw from the admissible commands only. false: freely. served: freely, and servers (AGENTPRM_SERVERS)
    play all but searches and branches."""
    lora: Lora | None
    """None: all weights are trained."""
    reason_tokens: CountOrNone
    """Most that a reason may have which the policy writes for each of the expert's actions; 0: none are written."""
    gradient_checkpointing: bool
    """Less memory, more time."""

    optimizer = "adamw"

    def __post_init__(self) -> None:
        if self.reason_tokens >= self.max_action_tokens:
            allowed = f"less than max_action_tokens, {self.max_action_tokens}, which bounds both"
            raise ValueError(f"reason_tokens: {self.reason_tokens} is not allowed: {allowed}")
        if self.reason_tokens and self.constrained is True:
            raise ValueError(f"reason_tokens: {self.reason_tokens} is not allowed: 0 with constrained, which has none")


ModelConfig = ScratchModel | PublishedModel


def require_folder(source: str, world: str) -> None:
    """Raises DataError for the path of a folder that is not there. No model's id on the hub is such a path. ``world``:
    what the model is to know."""
    if source.startswith((".", "/")) and not Path(source).is_dir():
        raise DataError(
            f"model.source: {source} is no folder here; name the folder of a model, or make one that knows {world} by "
            "agentprm make-chat-model: the commands, with sizes and times, are in docs/language-models.md"
        )


def starting_policy(
    model: ModelConfig, demos: Iterable[Episode], spec: WorldSpec, *, device: str, seed: int
) -> Checkpoint:
    """The policy before it has seen a demonstration. Raises DataError for the path of a folder that is not there."""
    if isinstance(model, PublishedModel):
        require_folder(model.source, spec.name)
        where = {"prompt": spec.prompt, "revision": model.revision}
        policy = load_checkpoint(model.source, device=device, **where)
        return with_lora(policy, model.lora, model.revision) if model.lora else policy
    texts = {
        text for demo in demos for turn in demo.turns for text in (turn.observation, turn.action, *turn.admissible)
    }
    tokenizer = train_tokenizer(sorted(texts), model.context, spec.phrases, spec.entity, spec.rewritten)
    fresh = new_model(tokenizer, **model.sizes, seed=seed, alike=spec.alike)
    fresh.to(device)  # pyright: ignore[reportArgumentType]: transformers wraps it
    return Checkpoint(fresh, tokenizer, make_renderer(tokenizer), digest="untrained")


def with_lora(policy: Checkpoint, lora: Lora, revision: str | None = None) -> Checkpoint:
    """The same policy with a fresh LoRA adapter to train. ``revision``: of the policy's weights.

    Raises DataError for layers that the model has not, and for a rank that is not less than their smaller side.
    """
    from peft import LoraConfig, get_peft_model

    _check_lora(policy.model, lora)
    config = LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        target_modules=list(lora.modules),
        task_type="CAUSAL_LM",
        revision=revision,
    )
    policy.model.config.base_digest = policy.digest
    tuned = cast("PreTrainedModel", get_peft_model(policy.model, config))  # it has all of one that is used
    return Checkpoint(tuned, policy.tokenizer, policy.renderer, policy.digest)


def _check_lora(model: PreTrainedModel, lora: Lora) -> None:
    layers = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    kinds = {name.rsplit(".", 1)[-1] for name in layers}
    if missing := [name for name in lora.modules if name not in kinds]:
        raise DataError(
            f"model.lora.modules: {', '.join(missing)} is not allowed: linear layers of this model, which are "
            f"{', '.join(sorted(kinds))}"
        )
    adapted = {name: module.weight.shape for name, module in layers.items() if name.rsplit(".", 1)[-1] in lora.modules}
    name = min(adapted, key=lambda each: min(adapted[each]))
    if lora.rank >= min(adapted[name]):
        raise DataError(
            f"model.lora.rank: {lora.rank} is not allowed: less than {min(adapted[name])}, the smaller side of {name}"
        )
