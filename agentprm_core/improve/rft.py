"""Rejection-sampling fine-tuning: imitate one's own successes (RFT), the rival that needs no process rewards."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from transformers import PreTrainedModel

from agentprm_core.errors import DataError
from agentprm_core.improve.sft import SftSettings, train_sft
from agentprm_core.policy.prompt import Renderer
from agentprm_core.types import Episode


def train_rft(
    episodes: Iterable[Episode], renderer: Renderer, model: PreTrainedModel, settings: SftSettings, scratch: Path
) -> tuple[PreTrainedModel, dict]:
    """:func:`agentprm_core.improve.sft.train_sft` on the won episodes, each way of winning a game once.

    The metrics also have ``episodes`` (offered) and ``successes`` (won and distinct). Raises DataError where none was
    won.
    """
    offered = list(episodes)
    kept = successes(offered)
    if not kept:
        raise DataError(
            f"none of the {len(offered)} episodes was won: nothing to imitate; play more of them (rollout.games, "
            "rollout.episodes_per_game)"
        )
    model, metrics = train_sft(kept, renderer, model, settings, scratch)
    return model, metrics | {"episodes": len(offered), "successes": len(kept)}


def successes(episodes: Iterable[Episode]) -> list[Episode]:
    """The won episodes, the first of those that did the same in the same game."""
    distinct: dict[tuple, Episode] = {}
    for episode in episodes:
        if episode.won:
            distinct.setdefault((episode.game_id, tuple(turn.action for turn in episode.turns)), episode)
    return list(distinct.values())
