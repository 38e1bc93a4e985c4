"""What a PRM learns from and is measured on: episodes with the worth of their turns and of actions tried beside."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np

from agentprm_core.branches import BRANCHES
from agentprm_core.credit.branching import branch_values
from agentprm_core.datasets import episodes_from_table, read_table
from agentprm_core.prm.rows import Labelled, Tried
from agentprm_core.types import EPISODES, LABELS

__all__ = ["Labelled", "Tried", "labelled", "tried_actions", "tried_episodes"]


def labelled(
    episodes: Path, labels: Path, tried: dict[tuple[str, int], list[Tried]]
) -> tuple[list[Labelled], list[Labelled]]:
    """(training, held-out) episodes with the worth of their turns and of the actions ``tried`` beside them."""
    rows = read_table(labels, LABELS)
    q_N, splits = rows["q"].to_numpy(), rows["split"].to_pylist()
    sides: dict[str, list[Labelled]] = {"train": [], "validation": []}
    first = 0
    for episode in episodes_from_table(read_table(episodes, EPISODES)):
        q_T = q_N[first : first + episode.length].copy()
        q_T[: episode.start] = np.nan  # replayed: not the policy's turns
        sides[splits[first]].append(Labelled(episode, q_T, tried[episode.game_id, episode.index]))
        first += episode.length
    return sides["train"], sides["validation"]


def tried_actions(branches: Path, *, gamma: float, outcome: str) -> dict[tuple[str, int], list[Tried]]:
    """By (game, episode) the actions tried at its states, each with its measured value."""
    values = branch_values(read_table(branches, BRANCHES), gamma=gamma, outcome=outcome)
    found: dict[tuple[str, int], list[Tried]] = defaultdict(list)
    for row in values.to_pylist():
        found[row["game_id"], row["episode"]].append(
            Tried(row["turn"], row["action"], row["q"], row["reason"], row["returns"])
        )
    return found


def tried_episodes(episodes: Path, branches: Path, *, gamma: float, outcome: str = "binary") -> list[Labelled]:
    """Episodes without labels of their own turns, with the actions tried beside them."""
    tried = tried_actions(branches, gamma=gamma, outcome=outcome)
    return [
        Labelled(episode, np.full(episode.length, np.nan, np.float32), tried[episode.game_id, episode.index])
        for episode in episodes_from_table(read_table(episodes, EPISODES))
    ]
