"""What the fast engine plays: one game as small integers, bit masks and names. Plain data, no behaviour.

Objects, receptacles and locations are numbered in the order of their sorted PDDL ids, which is the order of every
enumeration in ALFWorld's text. A set of objects or receptacles is an int used as a bit mask.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from typing import Any

from agentprm_core.types import Game
from agentprm_core.worlds.alfworld.goal import Formula

Mask = int


@dataclass(frozen=True, slots=True)
class CompiledGame:
    """Everything that never changes in one game, and its first state. Shared by all worlds that play it."""

    game_id: str
    digest: str
    """Hex digest of the game's id, task sentence and problem."""
    agent: str
    intro: str
    """The first observation: the room, a blank line, the task sentence."""
    objects: tuple[str, ...]
    """Names, by object."""
    receptacles: tuple[str, ...]
    """Names, by receptacle."""
    location_of: tuple[int, ...]
    """Receptacle → location. Only the locations the agent can stand at are numbered."""
    receptacles_at: tuple[tuple[int, ...], ...]
    """Location → receptacles, ascending."""
    accepts: tuple[Mask, ...]
    """Receptacle → objects that may be put there."""
    inside: tuple[str, ...]
    """Object → the enumeration of what is in it if it is a receptacle itself (a mug), else an empty string."""
    openable: Mask
    pickupable: Mask
    cleanable: Mask
    heatable: Mask
    coolable: Mask
    toggleable: Mask
    sliceable: Mask
    knives: Mask
    sinks: Mask
    microwaves: Mask
    fridges: Mask
    goal: Formula
    goal_reads: tuple[str, ...]
    """The fluent predicates in the goal, sorted: what a step must change to decide it."""
    start_location: int
    start_contents: tuple[tuple[int, ...], ...]
    """Receptacle → objects, ascending. Published problems do put an object into several."""
    start_present: tuple[tuple[int, ...], ...]
    """Location → objects said to be there (``objectAtLocation``), ascending. May disagree with the contents."""
    start_opened: Mask
    start_clean: Mask
    start_hot: Mask
    start_cool: Mask
    start_toggled: Mask
    start_sliced: Mask


_FIELDS = tuple(field.name for field in fields(CompiledGame))


def game_digest(game: Game) -> str:
    """Hex digest of all that a compiled game depends on."""
    return hashlib.blake2b("\0".join((game.id, game.goal, game.payload)).encode(), digest_size=16).hexdigest()


def to_record(game: CompiledGame) -> list:
    """The fields in order, ready for JSON (tuples become lists there)."""
    return [getattr(game, name) for name in _FIELDS]


def from_record(record: list) -> CompiledGame:
    """The inverse of :func:`to_record` after a trip through JSON."""
    return CompiledGame(*[_frozen(value) for value in record])


def _frozen(value: Any) -> Any:
    return tuple([_frozen(part) for part in value]) if isinstance(value, list) else value
