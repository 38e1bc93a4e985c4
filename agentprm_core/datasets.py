"""Datasets on disk: Parquet that appears whole or not at all, and episodes to rows and back.

Bytes are deterministic: zstd at a fixed level, rows as given (callers sort), no clock and no run id.
"""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from agentprm_core.errors import DataError
from agentprm_core.types import EPISODES, GAMES, SERVED, Episode, Game, Turn

REPLAYED = "replayed"
"""The method of turns that lead to where an episode starts (a reset distribution)."""


_FULL = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Write a file or folder aside and move it to ``path`` when the block ends well; leave no trace when it does not.

    The block gets a path that does not exist yet, on the same file system as ``path``. A folder takes the place of the
    one that was there; a file takes no folder's.

    Raises:
        DataError: nothing can be written there, or a file was written and ``path`` is a folder. The folder stays as it
            is.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {error.filename}: {error.strerror}") from error
    try:
        yield aside / path.name
        if path.is_dir():
            if not (aside / path.name).is_dir():
                raise DataError(f"{path} is a folder: name a file")
            shutil.rmtree(path)
        os.replace(aside / path.name, path)
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise DataError(f"{path}: cannot be written: {os.strerror(error.errno)}") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def write_table(table: pa.Table, path: Path, group: int | None = None) -> None:
    """One Parquet file, whole or not at all, the same bytes for the same table.

    ``group``: rows of a row group, which is what is read at once. Long rows in one group are slow to read. None: the
    library's, a million.
    """
    with atomic_write(path) as aside:
        pq.write_table(table, aside, compression="zstd", compression_level=3, store_schema=True, row_group_size=group)


def read_table(path: Path, schema: pa.Schema) -> pa.Table:
    """A file, or all ``*.parquet`` of a folder in name order, with exactly ``schema``.

    Raises:
        FileNotFoundError: nothing there.
        DataError: a file that is no Parquet, or whose columns are not the schema's; names the file and the difference.
    """
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not files or not files[0].exists():
        raise FileNotFoundError(f"{path}: no Parquet file there")
    return pa.concat_tables([_read_one(file, schema) for file in files])


def _read_one(file: Path, schema: pa.Schema) -> pa.Table:
    try:
        table = pq.read_table(file)
    except pa.ArrowInvalid as error:
        raise DataError(f"{file}: cannot be read as a table: {error}") from error
    missing = set(schema.names) - set(table.column_names)
    if missing:
        raise DataError(f"{file}: lacks the columns {', '.join(sorted(missing))}")
    return table.select(schema.names).cast(schema)


def episodes_to_table(episodes: Iterable[Episode], *, iteration: int, method: str, policy: str) -> pa.Table:
    """Rows of :data:`EPISODES`, sorted by game, episode, turn. ``policy`` is the digest of who played.

    Turns before an episode's ``start`` were not its player's: their method is :data:`REPLAYED`.
    """
    rows: dict[str, list] = {name: [] for name in EPISODES.names}
    for episode in sorted(episodes, key=lambda e: (e.game_id, e.index)):
        last = len(episode.turns) - 1
        for t, turn in enumerate(episode.turns):
            values = (
                iteration, REPLAYED if t < episode.start else method, episode.game_id, episode.seed, episode.index, t,
                turn.observation, turn.action, turn.reason, list(turn.admissible), turn.valid,
                episode.reward if t == last else 0.0, episode.won and t == last, t == last, turn.state_key, policy,
            )  # fmt: skip
            for name, value in zip(EPISODES.names, values):
                rows[name].append(value)
    return pa.table(rows, schema=EPISODES)


def with_log_probs(table: pa.Table, episodes: Iterable[Episode]) -> pa.Table:
    """Rows of :data:`SERVED`: ``table``, which :func:`episodes_to_table` made of ``episodes``, with what their players
    said of each action (``extra["log_probs"]``)."""
    said: list[float | None] = []
    for episode in sorted(episodes, key=lambda e: (e.game_id, e.index)):
        given = [None if math.isnan(one) else one for one in episode.extra["log_probs"]]
        said += [None] * (episode.length - len(given)) + given
    return table.append_column(SERVED.field("log_prob"), pa.array(said, SERVED.field("log_prob").type))


def episodes_from_table(table: pa.Table) -> Iterator[Episode]:
    """The episodes of a table of :data:`EPISODES`, in its order, which must be that of ``episodes_to_table``."""
    starts = np.flatnonzero(table["turn"].to_numpy() == 0)
    for block in range(0, len(starts), 1000):  # rows as Python objects are fifty times their Arrow size
        end = starts[block + 1000] if block + 1000 < len(starts) else table.num_rows
        rows = table.slice(starts[block], end - starts[block]).to_pylist()
        for (game_id, index), group in groupby(rows, key=lambda row: (row["game_id"], row["episode"])):
            yield _episode(game_id, index, list(group))


def _episode(game_id: str, index: int, rows: list[dict]) -> Episode:
    turns = tuple(
        Turn(r["observation"], r["action"], tuple(r["admissible"]), r["valid"], r["state_key"], r["reason"])
        for r in rows
    )
    start = sum(row["method"] == REPLAYED for row in rows)
    return Episode(game_id, index, rows[0]["seed"], turns, won=rows[-1]["won"], start=start, reward=rows[-1]["reward"])


def games_to_table(games: Iterable[Game]) -> pa.Table:
    """Rows of :data:`GAMES`, sorted by id."""
    games = sorted(games, key=lambda game: game.id)
    columns = {name: [getattr(game, name) for game in games] for name in GAMES.names if name not in _NOT_AS_THEY_ARE}
    columns["game_id"] = [game.id for game in games]
    columns["attributes"] = [json.dumps(dict(game.attributes), sort_keys=True) for game in games]
    return pa.table({name: columns[name] for name in GAMES.names}, schema=GAMES)


def games_from_table(table: pa.Table) -> list[Game]:
    rows = table.select(GAMES.names).to_pylist()
    return [Game(*[*row.values()][:-1], attributes=json.loads(row["attributes"])) for row in rows]


_NOT_AS_THEY_ARE = ("game_id", "attributes")
