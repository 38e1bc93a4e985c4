"""What an entity is called in the text: ``cabinet_bar__minus_00_dot_57…`` is ``cabinet 3``.

Same numbering as ``alfworld.agents.utils.misc.Demangler``: entities of one kind are numbered downwards in the
order of their sorted ids, so the first id gets the highest number.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

SEPARATOR = "_bar_"


def entity_names(ids: Iterable[str]) -> dict[str, str]:
    """Name of every id that has a position in it (all receptacles and objects do; types and agents do not).

    ``ids`` are all the ids that occur in the facts of the initial state, whatever they are: an id counts
    towards the numbering even if the agent can never see the entity.
    """
    by_kind: dict[str, list[str]] = defaultdict(list)
    for entity in sorted(ids):
        kind, separator, _ = entity.partition(SEPARATOR)
        if separator:
            by_kind[kind + "basin" if "basin" in entity else kind].append(entity)
    return {
        entity: f"{kind} {number}"
        for kind, entities in by_kind.items()
        for number, entity in zip(range(len(entities), 0, -1), entities)
    }


def listing(names: list[str]) -> str:
    """An enumeration in the grammar's way: ``nothing``, ``a mug 1``, ``a mug 2, and a mug 1``."""
    if not names:
        return "nothing"
    if len(names) == 1:
        return names[0]
    return ", ".join(names[:-1]) + ", and " + names[-1]
