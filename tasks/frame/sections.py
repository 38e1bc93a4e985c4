"""The sections of params.yaml.

They are named after stages, but for ``critic`` and ``method``: these name a file of :mod:`agentprm_core.methods` and
hold that file's own parameters.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from agentprm_core.config import (
    Count,
    CountOrNone,
    LearningRate,
    NotNegative,
    Positive,
    Range,
    Seed,
    Share,
    ShareOrAll,
    Temperature,
    Turns,
)
from agentprm_core.errors import DataError
from agentprm_core.methods.critic_base import CriticConfig
from agentprm_core.methods.update_base import UpdateConfig
from agentprm_core.plays import Branch, Explore
from agentprm_core.policy.starting import ModelConfig
from agentprm_core.search.decoding_config import decoding
from agentprm_core.worlds import measured_in, world_module, world_spec
from agentprm_core.worlds.held_out_places import GUARDS
from agentprm_core.worlds.raised import short_path


def refused(error: Exception) -> str:
    """The words of every refusal."""
    return str(error).replace(" is not one of", " is not allowed: one of", 1).replace(", nor ", ", or ")


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
    """Of training and of play. On a processor without instructions for it, bfloat16 is slower."""
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


def _file_of(module: str) -> str:
    """That an imported module was read from."""
    return str(Path(sys.modules[module].__file__ or "").resolve())


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
            spec = world_spec(self.world)
        except DataError as error:
            raise ValueError(f"world: {refused(error)}") from None
        module = world_module(self.world)
        folder = "/".join(module.split(".")[: -2 if spec.members else -1])  # a mixture's is the folder of all worlds
        if module.startswith("agentprm_core.worlds.") and self.code != folder:
            raise ValueError(f"code: {self.code!r} is not allowed: {folder}, where {self.world} is")
        if not Path(self.code).exists():
            raise ValueError(f"code: {self.code!r} is not allowed: a folder or file that is there")
        file = _file_of(module) if ":" in self.world else ""
        if file and not Path(file).is_relative_to(Path(self.code).resolve()):
            allowed = f"{short_path(file)}, where {self.world} is, or a folder that has it"
            raise ValueError(f"code: {self.code!r} is not allowed: {allowed}")


@dataclass(frozen=True)
class Published:
    """Published games with generated ones beside them. The places that the generator keeps for ``unseen`` are kept out
    of training: published training games of these places are ``unseen``."""

    root: str
    """The folder of the published games."""
    generated: CountOrNone
    """Games of train that the generator makes, in places of the published ones."""
    mixed: CountOrNone
    """Games of train in places that are put together from several places of the published ones."""


@dataclass(frozen=True)
class Games:
    """What is played."""

    published: str | Published | None
    """The folder of the world's published games, in the splits they are published in; or {root, generated, mixed};
    null: the world's generator makes all."""
    train: Count
    """Games to learn from."""
    seen: CountOrNone
    """Held-out games of the same places, levels or products as train's."""
    unseen: CountOrNone
    """Held-out games of others."""

    @property
    def root(self) -> str | None:
        """The folder of the published games; None: there are none."""
        return self.published.root if isinstance(self.published, Published) else self.published

    @property
    def guards(self) -> int:
        """Guard games that are asked for, no more than of ``unseen``. None beside published games that are not told
        apart by place: the generator's are other games than these."""
        apart = self.published is None or isinstance(self.published, Published)
        return min(GUARDS, self.unseen) if apart else 0


@dataclass(frozen=True)
class DemosBy:
    """Demonstrations of another expert than the world's first one."""

    count: Count
    """Training games that it plays."""
    by: str
    """Its name: the world's page has it."""


@dataclass(frozen=True)
class Demos:
    """What the world's expert shows."""

    games: CountOrNone | DemosBy
    """Training games that it plays; 0 with a published model, which is then π₀ as it is. A section: with the name of
    another expert."""
    knowledge: ShareOrAll
    """How well the expert knows where things usually lie."""
    corrupt: Share
    """Share of the expert's turns at which a random admissible command is done instead."""

    @property
    def count(self) -> int:
        """Games that are demonstrated."""
        return self.games.count if isinstance(self.games, DemosBy) else self.games

    @property
    def how(self) -> dict[str, Any]:
        """How they are demonstrated: arguments of :func:`agentprm_core.worlds.demonstrations.demonstrate`."""
        by = self.games.by if isinstance(self.games, DemosBy) else None
        return {"expert": by, "knowledge": self.knowledge, "corrupt": self.corrupt}


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
    """As the published data calls it. Not ``seen`` or ``unseen``: those are the campaign's own."""

    def __post_init__(self) -> None:
        if self.split in ("seen", "unseen"):
            raise ValueError(
                f"split: {self.split!r} is not allowed: another name than the campaign's own seen and unseen"
            )


@dataclass(frozen=True)
class Evaluate:
    """How policies are measured, on all held-out games."""

    decoding: tuple[str, ...]
    """Ways of playing, a temperature behind ``@`` where it is not the rollouts'. The first decides the champion,
    on ``seen``. ``best_of_16_by_untrained_likelihood`` beside ``best_of_16`` tells what the PRM adds."""
    also: Also | None
    """null: none."""

    def __post_init__(self) -> None:
        if not self.decoding:
            raise ValueError("decoding: () is not allowed: at least one way of playing")
        for name in self.decoding:
            try:
                decoding(name)
            except ValueError as error:
                raise ValueError(f"decoding: {refused(error)}") from None


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
    seed: Seed
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

    @property
    def measured_in(self) -> str:
        """The world that policies are measured in (:func:`agentprm_core.worlds.measured_in`)."""
        return measured_in(self.env.world)

    def as_dict(self) -> dict:
        """Plain values."""
        return asdict(self)
