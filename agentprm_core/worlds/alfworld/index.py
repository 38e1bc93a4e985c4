"""The entities of one problem as numbers, and its facts as masks and tables over them.

Refuses, by name, what the rules of ALFWorld's domain (``alfred.pddl`` of alfworld 0.4.2) do not provide for.
"""

from __future__ import annotations

from agentprm_core.worlds.alfworld.domain import ARITY, EMPTY_HANDED, TYPES, UNREAD
from agentprm_core.worlds.alfworld.names import entity_names
from agentprm_core.worlds.alfworld.pddl import PddlError, Problem

OBJECT_MASKS = (
    *("pickupable", "cleanable", "heatable", "coolable", "toggleable", "sliceable"),
    *("isclean", "ishot", "iscool", "istoggled", "issliced", "isreceptacleobject"),
)


class Index:
    """Numbers for objects, receptacles and reachable locations, in the order of their ids."""

    def __init__(self, problem: Problem) -> None:
        """Raises :class:`PddlError` naming the fact or the type that is outside the domain."""
        self.problem = problem
        _refuse_unknown(problem)
        facts = {predicate: problem.init.get(predicate, []) for predicate in ARITY}
        self.facts = facts
        mentioned = {entity for group in problem.init.values() for fact in group for entity in fact}
        self.names = entity_names(mentioned)
        self.agent, start = self._agent()
        self.objects = self._numbered("object", mentioned)
        self.receptacles = self._numbered("receptacle", mentioned)
        home = self._homes()
        self.locations = {name: i for i, name in enumerate(sorted({start, *home.values()}))}
        self.start = self.locations[start]
        self.location_of = tuple(self.locations[home[receptacle]] for receptacle in self.receptacles)
        self.receptacles_at = self._receptacles_at()
        self.masks = {name: self._mask(name, self.objects) for name in OBJECT_MASKS}
        self.openable = self._mask("openable", self.receptacles)
        self.opened = self._mask("opened", self.receptacles)
        self.object_types = self._by_type("objecttype", self.objects)
        self.receptacle_types = self._by_type("receptacletype", self.receptacles)
        self.knives = self.object_types.get("knifetype", 0) | self.object_types.get("butterknifetype", 0)
        self.sinks = self.receptacle_types.get("sinkbasintype", 0)
        self.microwaves = self.receptacle_types.get("microwavetype", 0)
        self.fridges = self.receptacle_types.get("fridgetype", 0)
        self.accepts = self._accepts()
        self.contents = self._grouped("inreceptacle", self.receptacles)
        reachable = [fact for fact in facts["objectatlocation"] if fact[1] in self.locations]
        self.present = self._grouped("objectatlocation", self.locations, reachable)
        self.inner = self._inner()

    def _agent(self) -> tuple[str, str]:
        places = self.facts["atlocation"]
        if len(places) != 1:
            raise PddlError(f"{len(places)} atLocation facts: one agent at one location is modelled")
        agent, place = places[0]
        return agent, place

    def _numbered(self, kind: str, mentioned: set[str]) -> dict[str, int]:
        """The entities of a type that some fact mentions; nothing can be said of or done to the others."""
        ids = sorted(name for name, its in self.problem.objects.items() if its == kind and name in mentioned)
        for name in ids:
            if name not in self.names:
                raise PddlError(f"the {kind} {name} has no position in its id, so no number and no name")
        return {name: i for i, name in enumerate(ids)}

    def _homes(self) -> dict[str, str]:
        home: dict[str, str] = {}
        for receptacle, location in self.facts["receptacleatlocation"]:
            self._number(self.receptacles, receptacle, "receptacleAtLocation")
            if home.setdefault(receptacle, location) != location:
                raise PddlError(f"the receptacle {receptacle} is at two locations")
        for receptacle in self.receptacles:
            if receptacle not in home:
                raise PddlError(f"the receptacle {receptacle} is at no location")
        return home

    def _number(self, index: dict[str, int], entity: str, predicate: str) -> int:
        if entity not in index:
            kind = self.problem.objects.get(entity)
            raise PddlError(f"{predicate} of {entity}, which is {'undeclared' if kind is None else f'of type {kind}'}")
        return index[entity]

    def _receptacles_at(self) -> tuple[tuple[int, ...], ...]:
        at: list[list[int]] = [[] for _ in self.locations]
        for receptacle, location in enumerate(self.location_of):
            at[location].append(receptacle)
        return tuple(map(tuple, at))

    def _mask(self, predicate: str, index: dict[str, int]) -> int:
        mask = 0
        for (entity,) in self.facts[predicate]:
            mask |= 1 << self._number(index, entity, predicate)
        return mask

    def _by_type(self, predicate: str, index: dict[str, int]) -> dict[str, int]:
        masks: dict[str, int] = {}
        for entity, kind in self.facts[predicate]:
            masks[kind] = masks.get(kind, 0) | 1 << self._number(index, entity, predicate)
        return masks

    def _accepts(self) -> tuple[int, ...]:
        """Receptacle → objects it may hold: one of its types ``canContain`` one of theirs."""
        by_receptacle_type: dict[str, int] = {}
        for rtype, otype in self.facts["cancontain"]:
            by_receptacle_type[rtype] = by_receptacle_type.get(rtype, 0) | self.object_types.get(otype, 0)
        accepts = [0] * len(self.receptacles)
        for receptacle, rtype in self.facts["receptacletype"]:
            accepts[self.receptacles[receptacle]] |= by_receptacle_type.get(rtype, 0)
        return tuple(accepts)

    def _grouped(self, predicate: str, groups: dict[str, int], facts=None) -> tuple[tuple[int, ...], ...]:
        """Second argument → first arguments (objects), ascending."""
        members: list[list[int]] = [[] for _ in groups]
        for entity, group in self.facts[predicate] if facts is None else facts:
            place = self._number(groups, group, predicate)
            members[place].append(self._number(self.objects, entity, predicate))
        return tuple([tuple(sorted(objects)) for objects in members])

    def _inner(self) -> dict[int, list[int]]:
        """Object → objects inside it, ascending (a spoon in a mug; no action changes that)."""
        inner: dict[int, list[int]] = {}
        for entity, outer in sorted(self.facts["inreceptacleobject"]):
            number = self._number(self.objects, outer, "inReceptacleObject")
            inner.setdefault(number, []).append(self._number(self.objects, entity, "inReceptacleObject"))
        return inner


def _refuse_unknown(problem: Problem) -> None:
    for kind in set(problem.objects.values()) - TYPES:
        raise PddlError(f"the type {kind} is not modelled")
    for predicate in problem.init.keys() - UNREAD:
        if predicate not in ARITY:
            raise PddlError(f"the predicate {predicate} in the initial state is not modelled")
        if predicate in EMPTY_HANDED:
            raise PddlError(f"{predicate} in the initial state: an agent that starts with full hands is not modelled")
        for fact in problem.init[predicate]:
            if len(fact) != ARITY[predicate]:
                raise PddlError(f"{predicate} of {len(fact)} arguments, {' '.join(fact)}: it takes {ARITY[predicate]}")
