"""What policy gradients share: advantages as a dataset, the clipped update, and fresh rollouts while it runs."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pyarrow as pa

from agentprm_core.config import Count, Positive, Range
from agentprm_core.credit.turns import Turns, read_turns, turns_from_table
from agentprm_core.datasets import episodes_from_table, episodes_to_table, read_table
from agentprm_core.improve.policy_gradient import Experience, GradientSettings, train_policy_gradient
from agentprm_core.kept import digest, kept
from agentprm_core.methods.base import Collected, Given, Played, Updated
from agentprm_core.methods.update_base import UpdateConfig, hardware_settings
from agentprm_core.overlap import of_played
from agentprm_core.rollout import play, starts
from agentprm_core.seeding import episode_seed
from agentprm_core.suites import advantages_suite
from agentprm_core.types import ADVANTAGES, EPISODES, Episode, Game


@dataclass(frozen=True)
class Refresh:
    """Fresh rollouts of the policy as it is, while it is trained. The first stretch of steps learns from the rollouts
    of the stage ``rollout``."""

    every: Count
    """Optimizer steps from one time to the next. All of them learn from the same episodes."""
    games: Count
    """Training games that are played each time, as many episodes of each as the rollouts have."""


@dataclass(frozen=True, kw_only=True)
class ClippedConfig(UpdateConfig):
    """The parameters of every clipped update."""

    optimizer: Literal["adamw", "muon"] | None
    """null: the model's. A step of muon is as long for a noisy gradient as for a clear one."""
    clip: Annotated[float, Range(gt=0, lt=1)]
    """ε: how far a probability ratio may move before it stops counting."""
    refresh: Refresh | None
    """null: one update of one set of rollouts. {every, games}: fresh rollouts while the policy is trained, in one
    process."""


@dataclass(frozen=True, kw_only=True)
class GradientConfig(ClippedConfig):
    """The parameters of those that stay near π_{i−1}."""

    beta: Positive
    """Weight of the KL to π_{i−1}."""


@dataclass(frozen=True)
class Credit:
    """What turns of a table of EPISODES were worth, in its order."""

    advantage_N: np.ndarray
    target_N: np.ndarray | None = None
    """What V(s) is to be; None without a critic."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """How it was found."""


@dataclass(frozen=True)
class Rule:
    """How a method learns from what was played."""

    credit: Callable[[pa.Table, int, Path], Credit]
    """(what was played, the number of the time, a path of its own in scratch) → what the turns were worth. Time 0 is
    the stage ``rollout``'s."""
    play: Callable[[Given, Sequence[Game], int], pa.Table] | None = None
    """(given, games, number of the time) → rows of ``schema``, by the policy as it is; None: whole episodes."""
    schema: pa.Schema = EPISODES
    level: str = "turn"
    """What a probability ratio is of: ``turn`` or ``token``."""
    beta: float = 0.0
    """Weight of the KL to π_{i−1}."""
    value_weight: float = 0.0
    """Of the critic's loss."""
    keeps: str = "all"
    """``undecided``: only episodes with an advantage are read."""


def turns_of(given: Given) -> Turns:
    """The turns of this iteration's rollouts."""
    return read_turns(given.folders.rollouts[-1])


def collected(turns: Turns, advantage_N: np.ndarray) -> Collected:
    """Rows of ADVANTAGES."""
    table = pa.table(
        {
            "game_id": pa.array(turns.games).take(pa.array(turns.game_N)),
            "episode": turns.episode_N,
            "turn": turns.turn_N,
            "advantage": advantage_N,
        },
        schema=ADVANTAGES,
    )
    figures = {"episodes": len(turns.won_E), "turns": len(turns.turn_N), **told(advantage_N)}
    return Collected(table, figures, advantages_suite(table))


def told(advantage_N: np.ndarray) -> dict[str, float]:
    """The share of turns that something is learnt from, and how much the advantages differ."""
    return {"told": float(np.mean(advantage_N != 0)), "std": float(advantage_N.std())}


def follow(config: ClippedConfig, given: Given, rule: Rule) -> Updated:
    """The clipped update of the rollouts by the advantages that were collected, and of fresh ones by ``rule``."""
    advantage_N = read_table(given.folders.collected, ADVANTAGES)["advantage"].to_numpy()
    return follow_these(config, given, rule, experience_of(given.episodes, Credit(advantage_N)))


def follow_these(config: ClippedConfig, given: Given, rule: Rule, first: Experience, *, alone: bool = False) -> Updated:
    """The clipped update of ``first``, and of fresh rollouts by ``rule``. ``alone``: in one process in any case.

    With fresh rollouts the figures have ``fresh_games``: :func:`agentprm_core.overlap.of_played` of all their games.
    """
    fresh = partial(_fresh, config, given, rule) if config.refresh else None
    settings = gradient_settings(config, given, rule, alone)
    model, figures = train_policy_gradient(first, given.trainee, settings, given.scratch, fresh, given.decoding)
    times = figures.get("refreshed", [])
    if config.refresh:
        drawn = {game.id for time in range(1, len(times) + 1) for game in _fresh_games(config.refresh, given, time)}
        figures["fresh_games"] = of_played(given, drawn)
    played = Played(sum(time["episodes"] for time in times), sum(time["turns"] for time in times))
    return Updated(model, figures, played)


def gradient_settings(config: ClippedConfig, given: Given, rule: Rule, alone: bool = False) -> GradientSettings:
    """A run that plays is one process, and keeps its states where rollouts are fresh."""
    every = config.refresh.every if config.refresh else 0
    hardware = hardware_settings(config, given, alone=alone or bool(every))
    hardware["optimizer"] = config.optimizer or hardware["optimizer"]
    if every:
        hardware["save_every"] = math.ceil(hardware["save_every"] / every) * every
    decides = (config, given.seed, given.temperature, replace(given.play, slots=0, cache_mb=0), given.threads)
    return GradientSettings(
        **hardware,
        steps=config.steps,
        beta=rule.beta,
        clip=config.clip,
        level=rule.level,
        value_weight=rule.value_weight,
        keeps=rule.keeps,
        refresh_every=every,
        fresh=digest(*decides) if every else "",
    )


def experience_of(episodes: Sequence[Episode], credit: Credit) -> Experience:
    """Episodes in their table's order with what their turns were worth."""
    ends = np.cumsum([episode.length for episode in episodes])[:-1]
    targets = None if credit.target_N is None else np.split(credit.target_N, ends)
    return Experience(episodes, np.split(credit.advantage_N, ends), targets, credit.figures)


def rollouts_digest(given: Given) -> str:
    """Of this iteration's rollouts: what is made of others may not be taken for what is made of these."""
    return hashlib.sha256(given.folders.rollouts[-1].read_bytes()).hexdigest()


def episodes_per_game(given: Given) -> int:
    """As the rollouts have them."""
    return 1 + max(episode.index for episode in given.episodes)


def play_whole(given: Given, games: Sequence[Game], time: int) -> pa.Table:
    """Rows of EPISODES: the policy as it is plays each game as often as in the rollouts, from its first state."""
    sampler = given.play.sampler(given.trainee, given.temperature)
    begun = starts(games, episodes_per_game(given), episode_seed(given.seed, "fresh", time))
    played = play(sampler, begun, **given.play.worlds)
    return episodes_to_table(played, iteration=given.iteration, method="policy", policy=f"after refresh {time}")


def _fresh(config: ClippedConfig, given: Given, rule: Rule, time: int, path: Path) -> Experience:
    """What a killed run has played it does not play again."""
    assert config.refresh is not None  # else nobody asks
    games = _fresh_games(config.refresh, given, time)
    playing = partial(rule.play or play_whole, given, games, time)
    table = kept(path.with_name(path.name + ".parquet"), rule.schema, playing)
    credit = rule.credit(table, time, path)
    return experience_of(list(episodes_from_table(table.select(EPISODES.names))), credit)


def _fresh_games(refresh: Refresh, given: Given, time: int) -> list[Game]:
    """Those that are played this time."""
    most = min(refresh.games, len(given.training_games))
    drawn = random.Random(episode_seed(given.seed, "fresh games", time)).sample(given.training_games, most)
    return sorted(drawn, key=lambda game: game.id)


def by_outcomes(advantages: Callable[[Turns], np.ndarray]) -> Callable[[pa.Table, int, Path], Credit]:
    """Credit that follows from the turns alone."""

    def credit(table: pa.Table, time: int, path: Path) -> Credit:
        return Credit(advantages(turns_from_table(table)))

    return credit
