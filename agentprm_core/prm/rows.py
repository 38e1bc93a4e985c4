"""Labelled episodes to training rows: the score is read at each action's end mark, on the trunk and on branches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from agentprm_core.errors import DataError
from agentprm_core.policy.prompt import Renderer
from agentprm_core.training.columns import ScoreColumns, TrainColumns, Values
from agentprm_core.training.packing import Row
from agentprm_core.training.tree import tree_row
from agentprm_core.types import Episode


@dataclass(frozen=True)
class Tried:
    """Another action at the state of a turn, and what it is worth."""

    turn: int
    action: str
    q: float
    reason: str = ""
    returns: Sequence[float] = ()
    """Of the plays whose mean ``q`` is, where it is one."""


@dataclass(frozen=True)
class Labelled:
    """An episode with the worth of its own actions and of others tried at its states."""

    episode: Episode
    q: np.ndarray
    """T values in [0, 1]; NaN where the turn has no label."""
    tried: Sequence[Tried] = ()


@dataclass(frozen=True)
class PrmColumns(ScoreColumns, TrainColumns):
    """The loss weight is 1 where a score is read, but for what :func:`agentprm_core.prm.losses.pair_weights` makes."""

    q: Values
    """There, what the action is worth."""
    state: Values
    """There, the turn + 1: actions of one row and state compete."""


def check_sides(labelled: Sequence[Labelled], held_out: Sequence[Labelled]) -> None:
    """Raises DataError where a game is on both sides."""
    shared = {item.episode.game_id for item in labelled} & {item.episode.game_id for item in held_out}
    if shared:
        raise DataError(f"{len(shared)} games are in both training and validation: {', '.join(sorted(shared)[:3])} …")


def outcome_alone(labelled: Labelled) -> Labelled:
    """The episode with one label, its outcome (1 won, 0 lost), at its last action: what an outcome reward model (ORM)
    learns from (paper B, baselines)."""
    q_T = np.full(len(labelled.episode.turns), np.nan, np.float32)
    q_T[-1] = labelled.episode.won
    return Labelled(labelled.episode, q_T)


def tried_alone(labelled: Labelled) -> Labelled:
    """The actions tried at the episode's states, without the labels of its own turns: what the relative loss learns
    from. A turn's own label is the return of few visits, mostly of one, where a tried action has the mean of several
    plays; and the turn's own action is mostly among those tried, so it would be compared with itself."""
    return replace(labelled, q=np.full(len(labelled.episode.turns), np.nan, np.float32))


def action_tokens(renderer: Renderer, action: str, reason: str = "") -> tuple[int, ...]:
    """Tokens of an action up to its end mark, where it is scored."""
    return (*renderer.action_text(action, reason), renderer.stop_token)


def prm_row(labelled: Labelled, renderer: Renderer) -> Row[PrmColumns]:
    """The episode, and a branch for each other action tried. A score is read at the end of all that have a label.

    Raises:
        DataError: labels outside [0, 1] or not one a turn; names the episode.
    """
    episode, q_T = labelled.episode, np.asarray(labelled.q, dtype=np.float32)
    worth = np.concatenate([q_T[~np.isnan(q_T)], [tried.q for tried in labelled.tried]])
    if len(q_T) != len(episode.turns) or (worth < 0).any() or (worth > 1).any():
        raise DataError(
            f"episode {episode.index} of {episode.game_id}: {len(q_T)} labels for {len(episode.turns)} turns, "
            f"between {worth.min(initial=0)} and {worth.max(initial=0)}; they must be one a turn, in [0, 1]"
        )
    rendered = renderer.episode(episode.turns)
    columns = PrmColumns.zeros(len(rendered.input_ids))
    for turn, (begin, end, q) in enumerate(zip(rendered.action_starts, rendered.action_ends, q_T)):
        if not np.isnan(q):
            _mark(columns, end, turn, q, end - begin + 1)
    branches = []
    for tried in labelled.tried:
        tokens = action_tokens(renderer, tried.action, tried.reason)
        own = PrmColumns.zeros(len(tokens))
        _mark(own, -1, tried.turn, tried.q, len(tokens))
        branches.append((rendered.action_starts[tried.turn], tokens, own))
    return tree_row(rendered.input_ids, columns, branches)


def _mark(columns: PrmColumns, at: int, turn: int, q: float, span: int) -> None:
    columns.loss_weight[at] = columns.is_scored[at] = 1.0
    columns.q[at], columns.state[at], columns.span[at] = q, turn + 1, span
