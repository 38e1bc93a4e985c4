"""Which games are for validation: decided by the game alone, so that no game is ever on both sides."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from agentprm_core.errors import DataError
from agentprm_core.seeding import unit


def validation_games(games: Sequence[str], share: float, seed: int) -> np.ndarray:
    """bool [len(games)]: whether each game is for validation.

    A game's side depends on its id, ``seed`` and ``share`` only, never on which other games are present: datasets of
    different iterations, branching rollouts and pairs agree on it without speaking to each other. So the share is
    met on average; with few games it may be off.

    Raises:
        ValueError: ``share`` outside [0, 1).
        DataError: a side without any game, where ``share`` is above 0.
    """
    if not 0 <= share < 1:
        raise ValueError(f"rollout.validation_share: {share} is not in [0, 1)")
    side = np.array([unit(game, seed) < share for game in games], bool)
    if share > 0 and len(set(side)) < 2:
        raise DataError(
            f"rollout.validation_share: with {len(games)} games, share {share} and seed {seed} every game is for "
            f"{'validation' if side.all() else 'training'}; play more games or choose another seed "
            "(rollout.games, seed)"
        )
    return side
