"""What a method is given, and what it gives back.

Two kinds of method make a campaign. A *critic* learns what a turn is worth: it labels rollouts and trains a process
reward model (PRM) on the labels. A *method* improves the policy: it collects what the update learns from, and updates.
Each is one module of this folder with a frozen dataclass ``Config`` and two functions:

- a critic: ``label(config, given) -> Labels`` and ``train(config, given) -> TrainedPrm``
- a method: ``collect(config, given) -> Collected`` and ``update(config, given) -> Updated``

Both get a :class:`Given`: where the data lies, how this machine plays and trains. They never read parameters, the
environment or the clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from agentprm_core.datasets import episodes_from_table, games_from_table, read_table
from agentprm_core.expectations import Check
from agentprm_core.policy.decoding import Constrained
from agentprm_core.policy.models import Checkpoint, load_checkpoint, merged, playing_dtype
from agentprm_core.prm.dataset import Labelled
from agentprm_core.search.decoding_config import DecodingConfig
from agentprm_core.search.playing import PlaySettings, Search
from agentprm_core.shards.base import HERE, Shards
from agentprm_core.training.hardware import Hardware
from agentprm_core.types import EPISODES, GAMES, Episode, Game

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class Folders:
    """Where the data of one iteration lies."""

    games: Path
    """Table of the training games."""
    guard: Path
    """Table of the guard games; no such file where the games were made without them."""
    demos: Path
    """Table of the demonstrations."""
    rollouts: tuple[Path, ...]
    """Tables of the episodes of iterations 1 … i."""
    branches: Path
    """Table of this iteration's branching rollouts."""
    labels: Path
    """Table that this iteration's critic wrote."""
    collected: Path
    """Table that this iteration's method collected."""
    first_policy: Path
    """π₀."""
    policy: Path
    """π_{i−1}, which played the rollouts."""
    prm: Path
    """This iteration's PRM."""
    prm_before: Path | None
    """The PRM of the iteration before; None in the first."""


@dataclass(frozen=True)
class Given:
    """What a critic or a method may use. What lies on disk is read when it is asked for."""

    iteration: int
    seed: int
    """Of this iteration."""
    campaign_seed: int
    """The same for all iterations: it decides which games are for validation."""
    validation_share: float
    """The share of games that the PRM is not trained on."""
    temperature: float
    """The rollouts'."""
    folders: Folders
    play: PlaySettings
    hardware: Hardware
    device: str
    threads: int
    sizes: Mapping[str, int]
    """Of a new model; empty where the policy is a published one."""
    observation_weight: float
    """Of the fine-tuning: the loss weight of an observation's token."""
    scratch: Path
    """Space that survives a kill."""
    require: str = "nothing"
    """What a PRM must show before it is followed (:mod:`agentprm_core.methods.trust`)."""
    prior: float = 0.0
    """τ of score + τ log π̂, wherever the PRM chooses."""
    ranking: Mapping | None = None
    """How well this iteration's PRM ranks actions (:func:`agentprm_core.prm.ranking.ranking_accuracy`), once
    measured."""
    shards: Shards = HERE
    """Where long play is done. It decides no byte."""

    def search(self, way: DecodingConfig) -> Search:
        """``way`` of playing as this campaign searches: at the rollouts' temperature, with its prior."""
        return Search(way, self.play, self.temperature, prior=way.prior(self.prior))

    @cached_property
    def policy(self) -> Checkpoint:
        """π_{i−1}, to play or score."""
        return merged(self._player(self.folders.policy))

    @cached_property
    def prm(self) -> Checkpoint:
        """This iteration's PRM, to score."""
        return self._player(self.folders.prm, "prm")

    @cached_property
    def trainee(self) -> Checkpoint:
        """π_{i−1} in float32, to be trained in place."""
        return load_checkpoint(self.folders.policy, device=self.device)

    @cached_property
    def decoding(self) -> Constrained | None:
        """What the trainee may say where it plays; None: anything."""
        return Constrained(self.trainee, self.play.max_action_tokens) if self.play.constrained else None

    @cached_property
    def episodes(self) -> list[Episode]:
        """What π_{i−1} played."""
        return list(episodes_from_table(read_table(self.folders.rollouts[-1], EPISODES)))

    @cached_property
    def demonstrations(self) -> list[Episode]:
        return list(episodes_from_table(read_table(self.folders.demos, EPISODES)))

    @cached_property
    def training_games(self) -> list[Game]:
        return games_from_table(read_table(self.folders.games, GAMES))

    @cached_property
    def guard_games(self) -> list[Game]:
        """Games that nothing is trained or reported on, of places where no training game is: PRMs are judged on
        them. None where the world has no such games."""
        table = self.folders.guard
        return games_from_table(read_table(table, GAMES)) if table.exists() else []

    @cached_property
    def most_turns(self) -> dict[str, int]:
        """{training game: actions that an episode of it may have}."""
        return {game.id: self.play.turns(game) for game in self.training_games}

    def _player(self, folder: Path, kind: str = "policy") -> Checkpoint:
        dtype = playing_dtype(self.hardware.precision)
        return load_checkpoint(folder, plays=True, kind=kind, device=self.device, dtype=dtype)


@dataclass(frozen=True)
class Labels:
    """What a critic learns from."""

    table: pa.Table
    figures: dict
    checks: Sequence[Check]
    """What must hold of the table."""


@dataclass(frozen=True)
class TrainedPrm:
    model: PreTrainedModel
    figures: dict
    """As :func:`agentprm_core.training.trainer.fit` returns them, the curve among them, and ``validation``."""
    held_out: list[Labelled]
    """Episodes of games it was not trained on, with the actions tried at their states: its ranking is measured
    there."""
    measured_as: str
    """What a score is compared with in the calibration."""


@dataclass(frozen=True)
class Played:
    """What was played beside the rollouts of the stage ``rollout``."""

    episodes: int = 0
    turns: int = 0

    @property
    def figures(self) -> dict[str, int]:
        return {"episodes_played": self.episodes, "turns_played": self.turns}


@dataclass(frozen=True)
class Collected:
    """What an update learns from."""

    table: pa.Table
    figures: dict
    checks: Sequence[Check]
    played: Played = Played()


@dataclass(frozen=True)
class Updated:
    model: PreTrainedModel
    figures: dict
    """As :func:`agentprm_core.training.trainer.fit` returns them, the curve among them."""
    played: Played = Played()
    alarm: dict = field(default_factory=dict)
    """What a monitor of the update found, if one looked (:mod:`agentprm_core.improve.monitor`)."""
