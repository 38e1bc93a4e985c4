"""Which facts a household's goal may be about, and which of them some play could make true.

The published engine plans before it plays: a goal that no relaxed plan reaches (deletes ignored) leaves it without
a single action. Here such a goal grounds to False, and the game is refused.
"""

from __future__ import annotations

from collections.abc import Callable

from agentprm_core.worlds.alfworld.domain import STATIC
from agentprm_core.worlds.alfworld.goal import Goal
from agentprm_core.worlds.alfworld.index import Index


class Reach:
    """Decides goal facts over one :class:`Index`: ``static`` facts are listed, fluents become an atom or False."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self.static = {predicate: index.facts[predicate] for predicate in STATIC}
        inside = 0
        for objects in index.contents:
            for o in objects:
                inside |= 1 << o
        masks = index.masks
        self.holdable = masks["pickupable"] & inside
        placed = inside
        for accepted in index.accepts:
            placed |= self.holdable & accepted
        self._properties = {
            "isclean": masks["isclean"] | (masks["cleanable"] & self.holdable if index.sinks else 0),
            "ishot": masks["ishot"] | (masks["heatable"] & self.holdable if index.microwaves else 0),
            "iscool": masks["iscool"] | (masks["coolable"] & self.holdable if index.fridges else 0),
            "istoggled": masks["istoggled"] | masks["toggleable"] & placed,
            "issliced": masks["issliced"] | (self._sliceable() if index.knives & self.holdable else 0),
        }
        self._fluents: dict[str, Callable[..., Goal]] = {
            "inreceptacle": self._in_receptacle,
            "objectatlocation": self._object_at,
            "atlocation": self._at,
            "opened": self._opened,
            "holds": self._holds,
            "holdsany": self._holds_any,
        }

    def fluent(self, predicate: str, arguments: tuple[str, ...]) -> Goal:
        """The atom of a fact that may change, or False where no play can make it true."""
        if predicate in self._properties:
            return self._property(predicate, *arguments)
        return self._fluents[predicate](*arguments)

    def _sliceable(self) -> int:
        somewhere = 0
        for objects in self.index.present:
            for o in objects:
                somewhere |= 1 << o
        for accepted in self.index.accepts:
            somewhere |= self.holdable & accepted
        return self.index.masks["sliceable"] & somewhere

    def _property(self, predicate: str, entity: str) -> Goal:
        number = self.index.objects.get(entity)
        return number is not None and bool(self._properties[predicate] >> number & 1) and (predicate, number)

    def _in_receptacle(self, entity: str, receptacle: str) -> Goal:
        o, r = self.index.objects.get(entity), self.index.receptacles.get(receptacle)
        if o is None or r is None:
            return False
        possible = o in self.index.contents[r] or (self.holdable & self.index.accepts[r]) >> o & 1
        return bool(possible) and ("inreceptacle", o, r)

    def _object_at(self, entity: str, location: str) -> Goal:
        o, place = self.index.objects.get(entity), self.index.locations.get(location)
        if o is None:
            return False
        if place is None:
            return (entity, location) in self.index.facts["objectatlocation"]
        here = self.index.receptacles_at[place]
        possible = o in self.index.present[place] or any((self.holdable & self.index.accepts[r]) >> o & 1 for r in here)
        return possible and ("objectatlocation", o, place)

    def _at(self, agent: str, location: str) -> Goal:
        place = self.index.locations.get(location)
        return agent == self.index.agent and place is not None and ("atlocation", place)

    def _opened(self, receptacle: str) -> Goal:
        r = self.index.receptacles.get(receptacle)
        return r is not None and bool((self.index.openable | self.index.opened) >> r & 1) and ("opened", r)

    def _holds(self, agent: str, entity: str) -> Goal:
        o = self.index.objects.get(entity)
        return agent == self.index.agent and o is not None and bool(self.holdable >> o & 1) and ("holds", o)

    def _holds_any(self, agent: str) -> Goal:
        return agent == self.index.agent and bool(self.holdable) and ("holdsany",)
