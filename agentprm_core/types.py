"""The nouns of AgentPRM, and the Arrow schema of every dataset that passes between stages.

A *game* is one household with one task. A *turn* is what the policy saw and what it did. An *episode* is
a list of turns with one outcome. Datasets hold one row a game, a turn or a pair; see ``docs/architecture.md``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

TASK_TYPES = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)
"""ALFWorld's six task types, in its own numbering (1 … 6)."""


@dataclass(frozen=True, slots=True)
class Game:
    """One household with one task: everything an engine needs to play it."""

    id: str
    """Unique and stable: ``<split>/<task folder>/<trial folder>`` for published and generated trees alike."""
    split: str
    task_type: str
    """One of :data:`TASK_TYPES`."""
    goal: str
    """The task sentence, as it stands after ``Your task is to:`` (``put a clean mug in cabinet.``)."""
    floor_plan: int
    """AI2-THOR floor plan number (1–30 kitchens, 201– living rooms, 301– bedrooms, 401– bathrooms)."""
    problem: str
    """The PDDL problem text of ``game.tw-pddl``."""
    source: str
    """``generated`` or ``published``."""


class Turn(NamedTuple):  # as Observation: made at every turn, in half of a frozen dataclass's time
    """One decision. ``observation`` is what the policy saw *before* it acted."""

    observation: str
    action: str
    admissible: tuple[str, ...]
    """The sorted admissible commands of the state acted in."""
    valid: bool
    """Whether ``action`` was one of them."""
    state_key: str
    """The world's digest of the state acted in (:meth:`agentprm_core.envs.base.World.state_key`)."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Episode:
    """One play of one game. The only reward is 1 at the last turn if the task was won (paper A §2, B §3.1)."""

    game_id: str
    index: int
    """0 … G−1 among the episodes of this game in this dataset."""
    seed: int
    turns: tuple[Turn, ...]
    won: bool
    truncated: bool = False
    """Ended by the context's size, not by the world or by the turn limit."""
    start: int = 0
    """Turns that were replayed (a reset distribution), not decided by the policy; credit starts here."""
    extra: dict = field(default_factory=dict, compare=False)

    @property
    def length(self) -> int:
        return len(self.turns)


GAMES = pa.schema(
    [
        ("game_id", pa.string()),
        ("split", pa.string()),
        ("task_type", pa.string()),
        ("goal", pa.string()),
        ("floor_plan", pa.int32()),
        ("problem", pa.string()),
        ("source", pa.string()),
    ]
)

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
        ("done", pa.bool_()),
        ("state_key", pa.string()),
        ("policy", pa.string()),
    ]
)
"""One row a turn, sorted by (game_id, episode, turn). ``reward`` is non-zero only at an episode's last turn;
``done`` is true only there; ``policy`` is the checkpoint's digest."""

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
