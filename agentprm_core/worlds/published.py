"""Games on disk, whoever wrote them: tables of the stage ``games``, or a world's published data."""

from __future__ import annotations

from pathlib import Path

from agentprm_core.datasets import games_from_table, read_table
from agentprm_core.errors import DataError
from agentprm_core.types import GAMES, Game
from agentprm_core.worlds import world_spec


def find_games(world: str, root: Path, split: str, limit: int | None = None) -> list[Game]:
    """The games of ``split``: of a table ``root/split.parquet`` where there is one, else of the published data.

    Raises DataError for a world that has none.
    """
    table = root / f"{split}.parquet"
    if table.exists():
        return games_from_table(read_table(table, GAMES))[:limit]
    spec = world_spec(world)
    if spec.load is None:
        raise DataError(f"{table}: no such table, and {spec.name} has no published games to read instead")
    return spec.load(root, split, limit)
