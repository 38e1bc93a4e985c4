"""Monte Carlo labels by playing on from every turn (Math-Shepherd; the "MC labels" of paper B).

**What it learns from.** ``continuations`` fresh plays by π_{i−1} from right after every turn of its rollouts. Q̂ is
their mean return. They cost many times the rollouts' own turns.

**How it learns.** Soft cross-entropy, as :mod:`agentprm_core.methods.monte_carlo`.

Finished portions are kept in scratch: a kill costs one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from agentprm_core.config import Count
from agentprm_core.credit.branching import BRANCHING_LABELS, label_branching
from agentprm_core.credit.play_on import play_from_player
from agentprm_core.kept import digest
from agentprm_core.methods.base import Given, Labels, TrainedPrm
from agentprm_core.methods.critic_base import CriticConfig, checked_labels, labelled_sides, train_on_labels
from agentprm_core.policy.models import Checkpoint
from agentprm_core.search.playing import PlaySettings
from agentprm_core.shards.base import kept_portions
from agentprm_core.types import LABELS, Game
from agentprm_core.worlds.guarded import Guarded

_PORTION = 64
"""Episodes whose continuations are played as one, and that a kill can cost."""


@dataclass(frozen=True, kw_only=True)
class Config(CriticConfig):
    """Parameters of ``critic.name: playing_on``."""

    outcome: Literal["binary", "signed"]
    """R ∈ {0, 1}, or R ∈ {−1, +1} mapped to [0, 1]."""
    continuations: Count
    """Plays from each turn."""


def label(config: Config, given: Given) -> Labels:
    """Rows of LABELS, each the mean of fresh plays."""
    played = {episode.game_id for episode in given.episodes}
    games = {game.id: game for game in given.training_games if game.id in played}
    decides = (config, given.seed, given.temperature, given.play, given.device, given.threads, given.policy.digest)
    scratch = given.scratch / digest(*decides)
    ats = range(0, len(given.episodes), _PORTION)
    paths = [scratch / f"{at:06}.parquet" for at in ats]
    portions = [(given.episodes[at : at + _PORTION],) for at in ats]
    sides = {"validation_share": given.validation_share, "seed": given.campaign_seed}
    shared = (config, given.play, given.temperature, given.policy, games, sides)
    labels = pa.concat_tables(kept_portions(given.shards, paths, BRANCHING_LABELS, _labeller, shared, portions))
    figures = {
        "turns": labels.num_rows,
        "plays": pc.sum(labels["visits"]).as_py(),  # pyright: ignore[reportAttributeAccessIssue]: made at import
        "episodes_played": pc.sum(labels["visits"]).as_py(),  # pyright: ignore[reportAttributeAccessIssue]: made at import
        "turns_played": pc.sum(labels["played"]).as_py(),  # pyright: ignore[reportAttributeAccessIssue]: made at import
        "q_mean": pc.mean(labels["q"]).as_py(),  # pyright: ignore[reportAttributeAccessIssue]: made at import
        "q_std": pc.stddev(labels["q"]).as_py(),  # pyright: ignore[reportAttributeAccessIssue]: made at import
    }
    return checked_labels(given, labels.select(LABELS.names), figures)


def _labeller(
    config: Config,
    play: PlaySettings,
    temperature: float,
    policy: Checkpoint,
    games: Mapping[str, Game],
    sides: Mapping[str, float],
) -> Callable[..., pa.Table]:
    """Plays on from every turn of a portion of the episodes."""
    return partial(
        label_branching,
        games=games,
        make_world=partial(Guarded, play.world),
        play_from=play_from_player(play.sampler(policy, temperature), **play.worlds),
        rollouts=config.continuations,
        gamma=config.gamma,
        outcome=config.outcome,
        **sides,
    )


def train(config: Config, given: Given) -> TrainedPrm:
    """Soft cross-entropy on the turns and on the actions tried beside them."""
    sides = labelled_sides(given, gamma=config.gamma, outcome=config.outcome)
    return train_on_labels(config, given, *sides, loss="bce")
