"""Cells of an evaluation: the games of a split in one way of playing, each a portion of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from agentprm_core.evaluate import outcomes_table
from agentprm_core.policy.models import Checkpoint
from agentprm_core.search.playing import Search, mean_scores, play_games
from agentprm_core.types import Game
from agentprm_core.worlds import world_spec


@dataclass(frozen=True)
class Cell:
    """What is measured."""

    split: str
    games: Sequence[Game]
    search: Search

    @property
    def name(self) -> str:
        return f"{self.split}/{self.search.name}"


def measurer(
    policy: Checkpoint, prm: Checkpoint, world_model: Checkpoint | None, seed: int, named: Mapping
) -> Callable[[Cell], pa.Table]:
    """Plays a cell: rows of OUTCOMES. ``named``: the keyword arguments of
    :func:`agentprm_core.evaluate.outcomes_table` that all cells share. ``world_model``: of ``lookahead``."""

    def measured(cell: Cell) -> pa.Table:
        world = world_model if cell.search.way.method == "lookahead" else None
        episodes = play_games(policy, prm, cell.games, cell.search, seed, world)
        return outcomes_table(
            episodes,
            cell.games,
            split=cell.split,
            decoding=cell.search.name,
            constrained=cell.search.settings.constrained,
            policy=policy.digest,
            seed=seed,
            scores=mean_scores(prm, episodes),
            label=world_spec(cell.search.settings.world).label,
            **named,
        )

    return measured
