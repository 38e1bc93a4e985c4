"""iStar (Liu et al. 2025, arXiv 2509.19199): implicit step rewards beside the trajectory's advantage.

**What it learns from.** The rollouts of π_{i−1}, several episodes a game. An implicit process reward model π_φ learns
to prefer episodes that ended well to those of the same game that did not, by DPO on whole episodes
(:mod:`agentprm_core.improve.implicit`). A turn's reward is r = β_φ [log π_φ(a|s) − log π_old(a|s)], where both are
what play draws by: among the admissible commands if it is constrained. And

    A = A^E + α A^S,    A^E as GRPO's,    A^S = (r − mean r) / std r  over all turns of the game's episodes

The PRM of the campaign takes no part.

**How it updates.** As :mod:`agentprm_core.methods.grpo`. With ``refresh``, π_φ goes on learning from each set of fresh
rollouts, before it rewards them.

Departs from the paper in that π_φ starts from π_{i−1} in every iteration and is gone when the update ends, and that a
probability ratio is of a turn's action. Which pairs are made of a game's episodes the paper leaves open: here each
episode above the game's mean outcome with one below it, and the other way round.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from agentprm_core.config import Count, LearningRate, NotNegative, Positive
from agentprm_core.credit.group import istar_advantages
from agentprm_core.credit.turns import turns_from_table
from agentprm_core.datasets import atomic_write, episodes_from_table, read_table
from agentprm_core.errors import DataError
from agentprm_core.improve.implicit import (
    ImplicitSettings,
    PlayedRows,
    copied,
    played_rows,
    preferred_pairs,
    step_rewards,
    train_implicit,
)
from agentprm_core.kept import digest
from agentprm_core.methods.base import Collected, Given, Updated
from agentprm_core.methods.gradient import (
    Credit,
    GradientConfig,
    Rule,
    collected,
    follow,
    rollouts_digest,
    turns_of,
)
from agentprm_core.seeding import episode_seed
from agentprm_core.types import EPISODES

TOKENS = "implicit_tokens_trained"
"""The figure that says how many tokens π_φ was trained on."""
Figures = dict[str, float]


@dataclass(frozen=True)
class Implicit:
    """How the implicit process reward model learns."""

    beta: Positive
    """β_φ: scale of its rewards, and of the preferences' log-ratios."""
    learning_rate: LearningRate
    """At the start of each of its trainings; it falls along a cosine."""
    steps: Count
    """Optimizer steps of each of its trainings, of ``method.batch_tokens`` each."""


@dataclass(frozen=True, kw_only=True)
class Config(GradientConfig):
    """Parameters of ``method.name: istar``."""

    alpha: NotNegative
    """α: the weight of the step's advantage."""
    implicit: Implicit
    """The implicit process reward model."""


def collect(config: Config, given: Given) -> Collected:
    """Rows of ADVANTAGES. Raises DataError where all episodes of every game ended alike."""
    credit = Learner(config, given, "collect").begin()
    found = collected(turns_of(given), credit.advantage_N)
    found.figures.update(credit.figures, tokens_trained=credit.figures[TOKENS])
    return found


def update(config: Config, given: Given) -> Updated:
    """The clipped update. ``tokens_trained`` has both models' tokens."""
    learner = Learner(config, given, "update")
    trainings = []
    if config.refresh:
        trainings.append(learner.begin().figures)  # π_old is π_{i−1} now, no longer when the policy first plays anew
    updated = follow(config, given, Rule(learner.credit, beta=config.beta))
    trainings += updated.figures.get("refreshed", [])
    updated.figures[TOKENS] = sum(each[TOKENS] for each in trainings)
    updated.figures["tokens_trained"] += updated.figures[TOKENS]
    return updated


class Learner:
    """π_φ, from one set of rollouts to the next. What it has learnt outlives a kill.

    Its credit's figures are of its training on these rollouts: ``pairs``, ``implicit_accuracy`` where there were pairs,
    and :data:`TOKENS`.
    """

    def __init__(self, config: Config, given: Given, stage: str) -> None:
        """``stage`` is who trains: what another one has trained in the same scratch counts no tokens here."""
        self._config, self._given, self._stage = config, given, stage
        self._model, self._time = copied(given.trainee.model), -1

    def begin(self) -> Credit:
        """Learn from the rollouts of the stage ``rollout``, and reward them."""
        given = self._given
        played_by = given.trainee.digest, rollouts_digest(given)
        read_as = given.play.constrained, given.play.max_action_tokens
        decides = digest(self._config, given.seed, *played_by, *read_as, given.hardware, given.threads)
        rollouts = read_table(given.folders.rollouts[-1], EPISODES)
        return self.credit(rollouts, 0, given.scratch / f"implicit-{decides}-{0:05}")

    def credit(self, table: pa.Table, time: int, path: Path) -> Credit:
        """Learn from what was played, and reward it. ``path`` ends in the number of the time."""
        given, tokens = self._given, self._given.hardware.pass_tokens
        if self._time != time - 1:
            self._load(path.with_name(path.name.replace(f"-{time:05}", f"-{time - 1:05}")))
        episodes = list(episodes_from_table(table))
        played = played_rows(episodes, given.trainee, given.decoding, tokens)
        if _weights(path).exists():
            figures = self._load(path)
        elif pairs := preferred_pairs(episodes):
            figures = self._learn(played, pairs, time, path)
        elif not time:  # later on, fresh rollouts may all end alike: they teach nothing
            raise DataError(
                "no game has episodes of which some ended better than others: nothing to prefer; play more of them "
                "(rollout.episodes_per_game, rollout.games)"
            )
        else:
            figures = self._keep(path, {"pairs": 0, TOKENS: 0})
        self._time = time
        rewards = np.concatenate(step_rewards(self._model, played, episodes, self._config.implicit.beta, tokens))
        advantage_N = istar_advantages(turns_from_table(table), rewards, alpha=self._config.alpha)
        return Credit(advantage_N, figures=figures)

    def _learn(self, played: PlayedRows, pairs: Sequence[tuple[int, int]], time: int, path: Path) -> Figures:
        implicit, given = self._config.implicit, self._given
        hardware = given.hardware.settings(
            learning_rate=implicit.learning_rate,
            batch_tokens=self._config.batch_tokens,
            seed=episode_seed(given.seed, "implicit", time) % 2**32,
            alone=True,
        )
        settings = ImplicitSettings(**hardware, steps=implicit.steps, beta=implicit.beta)
        said = train_implicit(self._model, played, pairs, settings, path.with_name(f"{path.name}-implicit"))
        accuracy, tokens = said["curve"][-1]["accuracy"], said["tokens_trained"]
        return self._keep(path, {"pairs": len(pairs), "implicit_accuracy": accuracy, TOKENS: tokens})

    def _keep(self, path: Path, figures: Figures) -> Figures:
        weights = {name: p.detach().cpu().contiguous() for name, p in self._trained()}
        with atomic_write(_weights(path)) as aside:
            save_file(weights, aside, {"stage": self._stage, "figures": json.dumps(figures)})
        return figures

    @torch.no_grad()
    def _load(self, path: Path) -> Figures:
        with safe_open(_weights(path), "pt") as found:
            for name, p in self._trained():
                p.copy_(found.get_tensor(name))
            kept = found.metadata()
        figures = json.loads(kept["figures"])
        return figures if kept["stage"] == self._stage else figures | {TOKENS: 0}

    def _trained(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        return ((name, p) for name, p in self._model.named_parameters() if p.requires_grad)


def _weights(path: Path) -> Path:
    return path.with_name(f"{path.name}.safetensors")
