"""Do scores still tell anything late in an episode? Paper B finds them flat on trajectories of more than 20 turns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from agentprm_core.prm.validation import auc
from agentprm_core.types import Episode


def scores_by_turn(scores: Sequence[np.ndarray], episodes: Sequence[Episode]) -> list[dict]:
    """What a PRM's scores are at each turn of episodes it was not trained on.

    Args:
        scores: Q_φ of each episode's T actions, in (0, 1). Turns that only led to an episode's start are left out.

    Returns:
        A row a turn: ``turn`` (from 0), ``episodes`` (that decided it), ``won`` and ``lost`` (mean score of those that
        were won and lost in the end), ``change`` (mean |M_t − M_{t−1}|; flat scores have none) and ``auc`` (how often
        one that will be won scores above one that will be lost). None where no episode tells.

    Raises:
        ValueError: not one score a turn.
    """
    rows = []
    for m_T, episode in zip(scores, episodes, strict=True):
        if len(m_T) != episode.length:
            raise ValueError(
                f"episode {episode.index} of {episode.game_id}: {len(m_T)} scores for {episode.length} turns"
            )
        m_T = np.where(np.arange(episode.length) < episode.start, np.nan, m_T)
        change_T = np.abs(np.diff(m_T, prepend=np.nan))
        rows += [(t, m_T[t], change_T[t], episode.won) for t in range(episode.start, episode.length)]
    return [_row(t, np.array([row[1:] for row in rows if row[0] == t])) for t in sorted({row[0] for row in rows})]


def _row(turn: int, told_E3: np.ndarray) -> dict:
    """``told_E3``: score, change and outcome of each episode at this turn."""
    score_E, change_E, won_E = told_E3[:, 0], told_E3[:, 1], told_E3[:, 2].astype(bool)
    return {
        "turn": turn,
        "episodes": len(score_E),
        "won": _mean(score_E[won_E]),
        "lost": _mean(score_E[~won_E]),
        "change": _mean(change_E[~np.isnan(change_E)]),
        "auc": auc(score_E, won_E),
    }


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if len(values) else None
