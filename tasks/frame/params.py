"""params.yaml as one validated object.

Sections are named after stages, but for ``critic`` and ``method``: they name a file of :mod:`agentprm_core.methods` and
hold that file's own parameters. No key has a default: params.yaml is the one set of numbers. What is wrong with it is
one line that names the key, the value and what is allowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, make_dataclass
from pathlib import Path
from typing import Annotated, Literal, get_type_hints

import yaml

from agentprm_core.config import (
    Count,
    CountOrNone,
    LearningRate,
    NotNegative,
    Positive,
    Range,
    Share,
    ShareOrAll,
    Temperature,
    Turns,
)
from agentprm_core.errors import DataError
from agentprm_core.methods.critic_base import CriticConfig
from agentprm_core.methods.critics import critic_module
from agentprm_core.methods.methods import method_module
from agentprm_core.methods.update_base import UpdateConfig
from agentprm_core.plays import Branch, Explore
from agentprm_core.policy.starting import ModelConfig, PublishedModel, ScratchModel
from agentprm_core.search.decoding_config import decoding
from agentprm_core.worlds import world_module, world_spec
from tasks.frame.odds import at_odds
from tasks.frame.validation import Refused, build

PARAMS = Path("params.yaml")


class ParamsError(ValueError):
    """params.yaml cannot be used. One line: the key, its value, what is allowed."""


@dataclass(frozen=True)
class Parallel:
    """Processes that train together, each on a GPU of its own or all on the CPU; they share each step's passes. Online
    DPO draws its actions as it trains and stays one."""

    processes: Annotated[int, Range(ge=2)]
    """How many."""
    sharding: Literal["none", "fsdp2"]
    """``fsdp2``: each of them holds a part of weights, gradients and optimizer state."""


@dataclass(frozen=True)
class Compute:
    """What the machine is asked for."""

    device: Literal["cpu", "cuda"]
    """Where models train and play."""
    threads: Count
    """CPU threads of torch in each process. Sums in another order give other bytes."""
    precision: Literal["float32", "bfloat16"]
    """Of training, on a GPU also of play."""
    parallel: Parallel | None
    """null: training is one process."""
    cache_mb: Count
    """MiB for the key-value caches of a player."""
    slots: Count
    """Episodes that are played at once, at the most; fewer where their caches would not fit."""
    pass_tokens: Count
    """Tokens of one forward pass of training, at the most. A step with more tokens is made in several passes."""
    save_every: CountOrNone
    """Optimizer steps between states that a killed run resumes from; 0 keeps none."""


@dataclass(frozen=True)
class Env:
    """Where the agent acts."""

    world: str
    """A name, or ``package.module:SPEC`` of anybody's own."""
    code: str
    """The world's folder or file: an edit of it makes stages stale, an edit of another world does not."""
    max_turns: Turns
    """Actions an episode."""

    def __post_init__(self) -> None:
        try:
            world_spec(self.world)
        except DataError as error:
            raise ValueError(_allowed(error).removeprefix("env.")) from None
        module = world_module(self.world)
        folder = "/".join(module.split(".")[:-1])
        if module.startswith("agentprm_core.worlds.") and self.code != folder:
            raise ValueError(f"code: {self.code!r} is not allowed: {folder}, where {self.world} is")
        if not Path(self.code).exists():
            raise ValueError(f"code: {self.code!r} is not allowed: a folder or file that is there")


@dataclass(frozen=True)
class Games:
    """What is played."""

    published: str | None
    """The folder of the world's published games; null: the world's generator makes them."""
    train: Count
    """Games to learn from."""
    seen: CountOrNone
    """Held-out games of the same places, levels or products as train's."""
    unseen: CountOrNone
    """Held-out games of others."""


@dataclass(frozen=True)
class Demos:
    """What the world's expert shows."""

    games: Count
    """Training games that it plays."""
    knowledge: ShareOrAll
    """How well the expert knows where things usually lie."""
    corrupt: Share
    """Share of the expert's turns at which a random admissible command is done instead."""


@dataclass(frozen=True)
class Sft:
    """Fine-tuning of π₀ on the demonstrations."""

    learning_rate: LearningRate
    """At the start; it falls along a cosine."""
    epochs: Positive
    """Passes over the demonstrations."""
    batch_tokens: Count
    """Of an optimizer step."""
    observation_weight: NotNegative
    """Loss weight of predicting a token of an observation, beside 1 for an action's."""


@dataclass(frozen=True)
class Rollout:
    """What the policy plays for the PRM to learn from."""

    games: Count
    """Training games that are played, others in each iteration while there are any."""
    episodes_per_game: Count
    """Episodes of each of these games."""
    temperature: Temperature
    """Of the actions drawn. 1: as the policy holds them likely."""
    explore: Explore
    """null, or one of {resets: SHARE}, {bonus: C}, {steered: SHARE}."""
    validation_share: Annotated[float, Range(gt=0, lt=1)]
    """Share of the games that the PRM is not trained on, and measured on."""
    branch: Branch
    """Plays beside the episodes, from several actions at one state."""


@dataclass(frozen=True)
class Also:
    """Published games that are evaluated beside the campaign's own."""

    root: str
    """The folder of the published games."""
    split: str
    """As the published data calls it."""


@dataclass(frozen=True)
class Evaluate:
    """How policies are measured, on all held-out games."""

    decoding: tuple[str, ...]
    """Ways of playing, with a temperature behind ``@`` where it is not the rollouts'. The first decides the champion,
    on ``unseen`` where there are such games."""
    also: Also | None
    """null: none."""

    def __post_init__(self) -> None:
        if not self.decoding:
            raise ValueError("decoding: () is not allowed: at least one way of playing")
        for name in self.decoding:
            try:
                decoding(name)
            except ValueError as error:
                raise ValueError(f"decoding: {_allowed(error)}") from None


@dataclass(frozen=True)
class Iteration:
    prev: CountOrNone
    """The iteration whose policy plays the rollouts: the one before."""


@dataclass(frozen=True)
class Evaluated:
    prm: Count
    """The iteration whose PRM chooses in searches."""


@dataclass(frozen=True)
class Params:
    seed: CountOrNone
    """All randomness of a campaign follows from it."""
    compute: Compute
    env: Env
    games: Games
    demos: Demos
    model: ModelConfig
    sft: Sft
    rollout: Rollout
    critic: CriticConfig
    method: UpdateConfig
    evaluate: Evaluate
    iterations: dict[str, Iteration]
    """The loop: what follows what."""
    policies: dict[str, Evaluated]
    """What is evaluated."""

    @property
    def label(self) -> str:
        """The name of this campaign in tables of several: who learns, and how the policy follows."""
        return f"{self.method.name}/{self.critic.name}"

    def as_dict(self) -> dict:
        """Plain values."""
        return asdict(self)


def load_params(path: Path = PARAMS) -> Params:
    """The whole of params.yaml, validated.

    Raises:
        ParamsError: not there, not YAML, a key too many or too few, a value out of range, or values at odds.
    """
    if not path.exists():
        raise ParamsError(f"{path}: no such file; run this where dvc.yaml is")
    try:
        raw = yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        raise ParamsError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    return validate(raw, path.name)


def validate(raw: object, name: str) -> Params:
    """``raw`` as :class:`Params`. Raises ParamsError, whose line starts with ``name``."""
    try:
        read = build(_with_methods(raw), raw)
    except (Refused, DataError) as error:
        raise ParamsError(f"{name}: {_allowed(error)}") from None
    params = Params(**{field: getattr(read, field) for field in Params.__dataclass_fields__})
    for key, value, allowed in at_odds(params):
        raise ParamsError(f"{name}: {key}: {value!r} is not allowed: {allowed}")
    return params


def _allowed(error: Exception) -> str:
    """The words of every refusal."""
    return str(error).replace(" is not one of", " is not allowed: one of", 1).replace(", nor ", ", or ")


def _with_methods(raw: object) -> type:
    """Params with the configuration of the critic, the method and the kind of model that ``raw`` names."""
    hints = get_type_hints(Params, include_extras=True)
    chosen = {
        "critic": _config(raw, "critic", critic_module, hints["critic"]),
        "method": _config(raw, "method", method_module, hints["method"]),
        "model": ScratchModel if _said(raw, "model", "source") == "scratch" else PublishedModel,
    }
    return make_dataclass("Params", [(name, chosen.get(name, hint)) for name, hint in hints.items()], frozen=True)


def _config(raw: object, section: str, find, otherwise: type) -> type:
    name = _said(raw, section, "name")
    return find(name).Config if isinstance(name, str) else otherwise


def _said(raw: object, section: str, key: str) -> object:
    inner = raw.get(section) if isinstance(raw, Mapping) else None
    return inner.get(key) if isinstance(inner, Mapping) else None
