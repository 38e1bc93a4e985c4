"""The few columns credit needs, read from many Parquet shards of episodes without ever holding their text.

Ten million turns of text are gigabytes; what decides their credit is who follows whom, how it ended, and which
(state, action) pairs are the same. So text becomes 64-bit digests while it streams past (Polars), and everything after
works on numpy columns of N turns and E episodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import polars as pl
import pyarrow as pa

from agentprm_core.datasets import REPLAYED
from agentprm_core.errors import DataError
from agentprm_core.types import EPISODES

VISIT_KEYS = ("history", "state")
"""What counts as the same state: ``history``, all the policy has seen and done in the episode (paper A §2), or
``state``, the world's own ``state_key``, which merges histories that lead to one state."""

_NEEDED = ("game_id", "episode", "turn", "observation", "action", "reward", "won", "done", "state_key", "method")


@dataclass(frozen=True)
class Turns:
    """N turns of E episodes, sorted by game, episode, turn."""

    games: tuple[str, ...]
    """Game ids, sorted."""
    game_N: np.ndarray
    """int32 positions in ``games``."""
    episode_N: np.ndarray
    """int32, as in the rows: 0 … G−1 within a game."""
    turn_N: np.ndarray
    """int32, 0 … T−1."""
    observation_N: np.ndarray
    """uint64 digests of the observation's text."""
    action_N: np.ndarray
    """uint64 digests of the action's text."""
    world_N: np.ndarray
    """uint64 digests of the world's ``state_key``."""
    starts_E: np.ndarray
    """int64 row of each episode's first turn."""
    won_E: np.ndarray
    """bool, whether the episode succeeded."""
    reward_E: np.ndarray
    """float64 in [0, 1], the episode's last reward."""
    decided_N: np.ndarray
    """bool, False where the turn was replayed to where its episode starts: then nobody decided it, and no statistic
    counts it."""

    @property
    def lengths_E(self) -> np.ndarray:
        return np.diff(self.starts_E, append=len(self.turn_N))

    def per_turn(self, value_E: np.ndarray) -> np.ndarray:
        """[N]: each episode's value at each of its turns."""
        return np.repeat(value_E, self.lengths_E)

    def states(self, visit_key: str) -> np.ndarray:
        """uint64 [N]: equal where the turns are in the same state, in the sense of ``visit_key``.

        A history's digest is the wrapping sum of its texts' digests, each scrambled with its place, so it is a
        difference of running sums over all turns: no loop. Two of n different histories meet with probability
        n²/2⁶⁵: 3·10⁻⁶ for ten million.

        Raises:
            ValueError: ``visit_key`` is not one of :data:`VISIT_KEYS`.
        """
        check_key(visit_key)
        if visit_key == "state":
            return self.world_N
        place = 2 * self.turn_N.astype(np.uint64)
        seen, done = digest_pair(self.observation_N, place), digest_pair(self.action_N, place + np.uint64(1))
        before = np.cumsum(seen + done) - done  # all that was said and done up to this observation
        offset_E = before[self.starts_E] - seen[self.starts_E]
        return before - self.per_turn(offset_E)

    def state_actions(self, visit_key: str) -> np.ndarray:
        """uint64 [N]: equal where the turns do the same action in the same state."""
        return digest_pair(self.states(visit_key), digest_pair(self.action_N, np.uint64(1)))


def check_key(visit_key: str) -> None:
    if visit_key not in VISIT_KEYS:
        raise ValueError(f"critic.visit_key: {visit_key!r} is not one of {', '.join(VISIT_KEYS)}")


def shards(paths: Path | Sequence[Path]) -> list[Path]:
    """The Parquet files of files and folders, folders in name order.

    Raises:
        FileNotFoundError: a path that is not there, or a folder without Parquet files.
    """
    found: list[Path] = []
    for path in [paths] if isinstance(paths, Path) else paths:
        files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
        if not files or not files[0].exists():
            raise FileNotFoundError(f"{path}: no Parquet file of episodes there")
        found += files
    return found


def read_turns(rollouts: Path | Sequence[Path]) -> Turns:
    """The turns of one dataset of episodes: a file, a folder of shards, or several of them, in any order.

    Raises:
        FileNotFoundError: no shards.
        DataError: no rows, or rows that are not whole episodes (see :func:`turns_from_table`).
    """
    return _turns(pl.scan_parquet(shards(rollouts)))


def turns_from_table(table: pa.Table) -> Turns:
    """The turns of an in-memory table in schema EPISODES.

    Raises:
        DataError: a missing column, no rows, a turn that is missing or stands twice, a reward or a ``done`` before
            the last turn or a last turn without ``done``, a reward outside of [0, 1]; names game, episode and turn.
    """
    missing = set(_NEEDED) - set(table.column_names)
    if missing:
        raise DataError(f"episodes: lack the columns {', '.join(sorted(missing))}")
    needed = table.select(_NEEDED).cast(pa.schema([EPISODES.field(n) for n in _NEEDED]))
    return _turns(cast(pl.DataFrame, pl.from_arrow(needed)).lazy())


def _turns(rows: pl.LazyFrame) -> Turns:
    games = rows.select(pl.col("game_id").unique().sort()).collect(engine="streaming")["game_id"]
    if games.is_empty():
        raise DataError("episodes: no rows")
    columns = rows.select(
        pl.col("game_id").cast(pl.Enum(games)).to_physical().cast(pl.Int32).alias("game"),
        "episode",
        "turn",
        *(pl.col(text).hash(seed) for seed, text in enumerate(("observation", "action", "state_key"))),
        "reward",
        "won",
        "done",
        pl.col("method") != REPLAYED,
    ).collect(engine="streaming")
    found = [column.to_numpy() for column in columns]
    order = _order(*found[:3])
    if order is not None:
        found = [column[order] for column in found]
    game, episode, turn, observation, action, world, reward, won, done, decided = found
    names = tuple(games)
    starts = _check(names, game, episode, turn, reward, done)
    last = np.append(starts[1:], len(turn)) - 1
    ends = won[last], reward[last].astype(np.float64)
    return Turns(names, game, episode, turn, observation, action, world, starts, *ends, decided)


def _order(game: np.ndarray, episode: np.ndarray, turn: np.ndarray) -> np.ndarray | None:
    """The rows' order by game, episode, turn; None where they already stand so, the common case."""
    place = (game.astype(np.int64) << 32) + episode
    step = np.diff(place)
    if np.all((step > 0) | ((step == 0) & (np.diff(turn) > 0))):
        return None
    return np.lexsort((turn, place))


def _check(games, game, episode, turn, reward, done) -> np.ndarray:
    """Rows where episodes start; raises unless the rows are whole episodes with one outcome each."""

    def refuse(bad: np.ndarray, what: str) -> None:
        if bad.any():
            row = int(np.argmax(bad))
            raise DataError(
                f"episodes: game {games[game[row]]}, episode {episode[row]}, turn {turn[row]}: {what} "
                f"({int(bad.sum())} such rows)"
            )

    same = np.zeros(len(turn), bool)
    same[1:] = (game[1:] == game[:-1]) & (episode[1:] == episode[:-1])
    refuse(
        np.append(False, same[1:] & (turn[1:] == turn[:-1])),
        "stands twice; episodes of one game need different indices, label datasets that share them one by one",
    )
    expected = np.append(0, np.where(same[1:], turn[:-1] + 1, 0))
    refuse(turn != expected, "turns of an episode must run 0, 1, 2 … without a gap")
    last = np.append(~same[1:], True)
    refuse(done & ~last, "done before the episode's last turn")
    refuse(last & ~done, "the last turn of its episode, yet not done: a half-written episode?")
    refuse((reward != 0) & ~last, "a reward before the episode's last turn")
    refuse(~((reward >= 0) & (reward <= 1)), "a reward outside of [0, 1]")
    return np.flatnonzero(~same)


def digest_pair(a: np.ndarray, b: np.ndarray | np.uint64) -> np.ndarray:
    """uint64: a digest of the pair, by the finaliser of SplitMix64 (Steele et al. 2014)."""
    z = a + b * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
