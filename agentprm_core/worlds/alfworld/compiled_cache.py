"""The compiled games of a split on disk, so that a process starts on thousands of games within a second or two.

One Parquet file a set of games, named by the digest of their content and of the compiler's own source: a changed
problem, sentence or compiler finds no file and compiles anew. Nothing is pickled.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from agentprm_core.datasets import read_table, write_table
from agentprm_core.types import Game
from agentprm_core.worlds.alfworld.compile import compile_game, remember
from agentprm_core.worlds.alfworld.compiled import CompiledGame, from_record, game_digest, to_record

_SCHEMA = pa.schema([("game_id", pa.string()), ("compiled", pa.string())])
_COMPILER = ("pddl", "names", "domain", "index", "reach", "goal", "compile", "compiled")


def compile_games(games: Sequence[Game], cache: Path) -> list[CompiledGame]:
    """The compiled forms of ``games``, in order, from a file in the folder ``cache`` or compiled and written there.

    Worlds of this process that are reset to one of these games find it compiled. Raises
    :class:`agentprm_core.worlds.base.UnsupportedGame` for the first game that is not modelled; nothing is written then.
    """
    path = cache / f"compiled-{_digest(games)}.parquet"
    if path.exists():
        rows = read_table(path, _SCHEMA)["compiled"].to_pylist()
        compiled = [from_record(json.loads(row)) for row in rows]
    else:
        compiled = [compile_game(game) for game in games]
        rows = [json.dumps(to_record(game), separators=(",", ":")) for game in compiled]
        write_table(pa.table([[game.id for game in games], rows], schema=_SCHEMA), path)
    for game, ready in zip(games, compiled):
        remember(game, ready)
    return compiled


def _digest(games: Sequence[Game]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for module in _COMPILER:
        digest.update((Path(__file__).parent / f"{module}.py").read_bytes())
    for game in games:
        digest.update(game_digest(game).encode())
    return digest.hexdigest()
