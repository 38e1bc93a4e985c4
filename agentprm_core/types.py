"""The nouns of AgentPRM, and the Arrow schema of every dataset that passes between stages.

A *game* is one task in one world. A *turn* is what the policy saw and what it did. An *episode* is
a list of turns with one outcome. Datasets hold one row a game, a turn or a pair; see ``docs/architecture.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a world says to a chat model beside its observations."""

    instruction: str = ""
    """What the first message begins with."""
    lists_commands: bool = True
    """Whether every message lists the admissible commands."""


NO_PROMPT = Prompt()
"""Of a model that reads no instructions."""


@dataclass(frozen=True, slots=True)
class Game:
    """One task in one world: everything that the world needs to play it."""

    id: str
    """Unique and stable."""
    world: str
    """The name of its world (:func:`agentprm_core.worlds.world_spec`)."""
    split: str
    kind: str
    """One of the world's kinds of tasks."""
    goal: str
    """The task sentence."""
    payload: str
    """What the world is made from, in the world's own format."""
    attributes: Mapping[str, str | int] = field(default_factory=dict, hash=False)
    """What else is known of it, for gates and tables: a floor plan, a level."""


class Turn(NamedTuple):  # as Observation: made at every turn, in half of a frozen dataclass's time
    """One decision. ``observation`` is what the policy saw *before* it acted."""

    observation: str
    action: str
    admissible: tuple[str, ...]
    """The sorted admissible commands of the state acted in."""
    valid: bool
    """Whether ``action`` was one of them."""
    state_key: str
    """The world's digest of the state acted in (:meth:`agentprm_core.worlds.base.World.state_key`)."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Episode:
    """One play of one game. The only reward is at the last turn: 1 if the task was won, or a share of 1 where the world
    pays one (paper A §2, B §3.1)."""

    game_id: str
    index: int
    """0 … G−1 among the episodes of this game in this dataset."""
    seed: int
    turns: tuple[Turn, ...]
    won: bool
    """Whether the reward reached the world's threshold of success."""
    truncated: bool = False
    """Ended by the context's size, not by the world or by the turn limit."""
    start: int = 0
    """Turns that were replayed (a reset distribution), not decided by the policy; credit starts here."""
    extra: dict = field(default_factory=dict, compare=False)
    reward: float = None  # pyright: ignore[reportAssignmentType]: it is a number from ``__post_init__`` on
    """In [0, 1]; None stands for 1 of a won episode and 0 of another."""

    def __post_init__(self) -> None:
        if self.reward is None:
            object.__setattr__(self, "reward", float(self.won))

    @property
    def length(self) -> int:
        return len(self.turns)


GAMES = pa.schema(
    [
        ("game_id", pa.string()),
        ("world", pa.string()),
        ("split", pa.string()),
        ("kind", pa.string()),
        ("goal", pa.string()),
        ("payload", pa.string()),
        ("attributes", pa.string()),
    ]
)
"""One row a game. ``attributes`` is a JSON object."""

EPISODES = pa.schema(
    [
        ("iteration", pa.int32()),
        ("method", pa.string()),
        ("game_id", pa.string()),
        ("seed", pa.int64()),
        ("episode", pa.int32()),
        ("turn", pa.int32()),
        ("observation", pa.string()),
        ("action", pa.string()),
        ("reason", pa.string()),
        ("admissible", pa.list_(pa.string())),
        ("valid", pa.bool_()),
        ("reward", pa.float32()),
        ("won", pa.bool_()),
        ("done", pa.bool_()),
        ("state_key", pa.string()),
        ("policy", pa.string()),
    ]
)
"""One row a turn, sorted by (game_id, episode, turn). ``reward`` is non-zero, and ``won`` and
``done`` are true, at an episode's last turn alone; ``policy`` is the checkpoint's digest."""

SERVED = pa.schema([*EPISODES, ("log_prob", pa.float32())])
"""EPISODES that servers played. ``log_prob``: nats of all that was written for the action, as the server gave it; null
where it gave none, and of actions that were replayed. Who asks for EPISODES does not see it."""

LABELS = pa.schema(
    [
        ("game_id", pa.string()),
        ("episode", pa.int32()),
        ("turn", pa.int32()),
        ("q", pa.float32()),
        ("visits", pa.int32()),
        ("variance", pa.float32()),
        ("split", pa.string()),
    ]
)
"""One row a turn of EPISODES, same order. ``split`` is ``train`` or ``validation``, decided by game."""

ADVANTAGES = pa.schema(
    [
        ("game_id", pa.string()),
        ("episode", pa.int32()),
        ("turn", pa.int32()),
        ("advantage", pa.float64()),
    ]
)
"""One row a turn of EPISODES, same order: how much better than expected the turn was."""

PAIRS = pa.schema(
    [
        ("game_id", pa.string()),
        ("episode", pa.int32()),
        ("turn", pa.int32()),
        ("chosen", pa.string()),
        ("rejected", pa.string()),
        ("chosen_score", pa.float32()),
        ("rejected_score", pa.float32()),
    ]
)
"""Two actions at the state of that turn, and the PRM's scores of them."""
