"""What the text tells, as data: the things in sight, what is carried, and the clauses of the goal in their order."""

from __future__ import annotations

import re
from dataclasses import dataclass

from agentprm_core.worlds.babyai.kinds import COLORS

_THING = re.compile(
    r"There is a ((\w+) (?:(open|closed|locked) )?(key|ball|box|door)) (\d+) "
    r"(?:right in front of you (\d+) steps away|(\d+) steps in front of you and (\d+) steps to your (left|right))"
)
_CARRYING = re.compile(r"You are carrying a (\w+ \w+)\.")
_GOAL = re.compile(r"Your goal: (.*)")
_WANTED = re.compile(
    rf"(?:the|a|an) (?:({'|'.join(COLORS)}) )?(key|ball|box|door|object)"
    r"(?: (in front of you|behind you|on your left|on your right))?"
)


@dataclass(frozen=True, slots=True)
class Thing:
    """Something in sight."""

    name: str
    color: str
    state: str
    """Of a door: open, closed or locked; else empty."""
    type: str
    number: int
    """Among those of its name, as the text counts."""
    front: int
    """Steps ahead."""
    right: int
    """Steps to the right, below 0 to the left."""

    @property
    def faced(self) -> bool:
        return (self.front, self.right) == (1, 0)

    @property
    def steps(self) -> int:
        """To it."""
        return abs(self.front) + abs(self.right)

    def apart(self, other: Thing) -> int:
        """Steps between them."""
        return abs(self.front - other.front) + abs(self.right - other.right)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a clause speaks of."""

    color: str
    """Empty: any."""
    type: str
    """``object``: a key, a ball or a box."""
    place: str
    """As seen from the start; empty: anywhere."""

    def fits(self, thing: Thing) -> bool:
        """Its place aside."""
        types = ("key", "ball", "box") if self.type == "object" else (self.type,)
        return thing.type in types and self.color in ("", thing.color)

    def names(self, name: str) -> bool:
        """Whether a thing of this name (``red ball``) is what is wanted."""
        color, kind = name.split()
        return self.fits(Thing(name, color, "", kind, 1, 0, 0))


@dataclass(frozen=True, slots=True)
class Clause:
    verb: str
    """go to, open, pick up or put."""
    what: Wanted
    beside: Wanted | None = None
    """Of ``put``: next to what."""


def carried_in(text: str) -> str:
    """What a text says is carried (``red ball``); empty: nothing."""
    found = _CARRYING.search(text)
    return found[1] if found else ""


def goal_in(text: str) -> list[Clause]:
    """The clauses of the goal that a first text ends with; none where it says no goal."""
    found = _GOAL.search(text)
    return clauses_of(found[1]) if found else []


def things_of(text: str) -> list[Thing]:
    """What a text says is in sight, near ones first."""
    found = []
    for name, color, state, kind, number, ahead, front, side, hand in _THING.findall(text):
        right = int(side or 0) * (-1 if hand == "left" else 1)
        found.append(Thing(name, color, state, kind, int(number), int(ahead or front), right))
    return found


def clauses_of(goal: str) -> list[Clause]:
    """The clauses of a goal in an order that does.

    AgentGym says ``and`` for minigrid's ``then`` and ``after you``, but ``, then`` leaves its comma. What is before a
    comma comes first. Without a comma ``and`` means any order, or that the right one comes first: from right to left
    is never wrong.
    """
    return [_clause(text) for part in goal.split(", and ") for text in reversed(part.split(" and "))]


def _clause(text: str) -> Clause:
    wanted = [Wanted(*found) for found in _WANTED.findall(text)]
    verb = next(verb for verb in ("go to", "open", "pick up", "put") if text.strip().startswith(verb))
    return Clause(verb, *wanted)
