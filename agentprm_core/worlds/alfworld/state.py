"""The state of a household in play."""

from __future__ import annotations

from agentprm_core.worlds.alfworld.compiled import CompiledGame


class State:
    """What can change in a game. Its values are immutable, and :mod:`agentprm_core.worlds.alfworld.actions` sets them.

    ``held`` is an object or None, ``contents`` the objects by receptacle, ``present`` the objects by location,
    ``taken`` pairs of an object and the receptacle it was taken from, where that one shares its spot. Bit masks:
    ``opened`` of receptacles, ``clean``, ``hot``, ``cool``, ``toggled`` and ``sliced`` of objects.
    """

    __slots__ = (
        *("game", "location", "held", "contents", "present", "taken"),
        *("opened", "clean", "hot", "cool", "toggled", "sliced"),
    )
    game: CompiledGame
    location: int
    held: int | None
    contents: tuple[tuple[int, ...], ...]
    present: tuple[tuple[int, ...], ...]
    taken: tuple[tuple[int, int], ...]
    opened: int
    clean: int
    hot: int
    cool: int
    toggled: int
    sliced: int
