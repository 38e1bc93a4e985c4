"""The games that a command plays where none are named."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentprm_core.errors import DataError

if TYPE_CHECKING:
    from agentprm_core.types import Game
    from agentprm_core.worlds import WorldSpec

MEASURED = 200
"""Games of a measurement."""


def generated(spec: WorldSpec, count: int, seed: int, split: str) -> list[Game]:
    """Those that the world makes. Raises DataError where it makes none; says what to give instead."""
    try:
        return spec.generate(count, seed, split)
    except DataError as error:
        raise DataError(f"{error}: give --games DIR and --split NAME") from None
