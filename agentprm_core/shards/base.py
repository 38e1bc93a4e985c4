"""Portions of play, wherever they are played.

Work is a function of this package that makes a player from what all portions share (a policy, say), and plays one
portion a call. What a portion comes to depends on itself alone. How the work is cut may follow from the number of
players, and changes no episode: each draws by its game and number. So on a CPU a result has the same bytes for any
number of players.

Finished portions are kept: a killed run plays only what is missing.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, cast

import pyarrow as pa

from agentprm_core.datasets import read_table, write_table
from agentprm_core.errors import EXPECTED, DataError
from agentprm_core.policy.models import Checkpoint
from agentprm_core.progress import Nobody, watched_by, watcher

Work = Callable[..., Callable[..., Any]]
"""``work(*shared)`` is called once by each player, what it returns with ``*portion`` for each portion. A function of a
module, so that another process finds it by its name."""


@dataclass
class Tally(Nobody):
    """A watcher of play in another process: what this process's own watcher is told when the portion has come."""

    played: int = 0
    episodes: list[tuple[bool, int]] = field(default_factory=list)

    def turns(self, count: int) -> None:
        self.played += count

    def episode(self, won: bool, tokens: int) -> None:
        self.episodes.append((won, tokens))

    def tell(self) -> None:
        """This process's watcher."""
        watcher().turns(self.played)
        for won, tokens in self.episodes:
            watcher().episode(won, tokens)


@dataclass(frozen=True)
class Done:
    """A portion that was played."""

    number: int
    result: Any
    seconds: float
    """Of the player."""
    tally: Tally = field(default_factory=Tally)


@dataclass(frozen=True)
class Refused:
    """A portion whose data cannot be used: to play it again would say the same."""

    said: str


class Shards(Protocol):
    """Where portions are played."""

    players: int
    """That play at once, as far as is known: fewer portions leave some of them idle."""

    def play(self, work: Work, shared: tuple, portions: Sequence[tuple]) -> Iterator[Done]:
        """Every portion once, in the order in which they end. Raises DataError as the work does."""
        ...


class Here:
    """In this process, one after the other."""

    players = 1

    def play(self, work: Work, shared: tuple, portions: Sequence[tuple]) -> Iterator[Done]:
        """The next portion is played when it is asked for."""
        make = work(*shared) if portions else None
        for number, portion in enumerate(portions):
            assert make is not None
            start = time.perf_counter()
            result = make(*portion)
            yield Done(number, result, time.perf_counter() - start)


HERE = Here()


def on_cpu(part: Any) -> Any:
    """Of what portions share: a checkpoint as any process and machine can take it, all else as it is."""
    if not isinstance(part, Checkpoint) or part.model.device.type == "cpu":
        return part
    return replace(part, model=cast(Any, copy.deepcopy(part.model)).to("cpu"))


def on_device(part: Any, device: str) -> Any:
    """Of what portions share: a checkpoint on the player's device, all else as it is."""
    return replace(part, model=cast(Any, part.model).to(device)) if isinstance(part, Checkpoint) else part


def done_elsewhere(make: Callable[..., Any], number: int, portion: tuple) -> Done | Refused:
    """A portion, as another process plays it and hands it back."""
    tally, start = Tally(), time.perf_counter()
    try:
        with watched_by(tally):
            result = make(*portion)
    except EXPECTED as error:
        return Refused(str(error))
    return Done(number, result, time.perf_counter() - start, tally)


def accepted(done: Done | Refused) -> Done:
    """What :func:`done_elsewhere` handed back, once this process's watcher has heard of it.

    Raises DataError for a refusal.
    """
    if isinstance(done, Refused):
        raise DataError(done.said)
    done.tally.tell()
    return done


def kept_portions(
    shards: Shards,
    paths: Sequence[Path],
    schema: pa.Schema,
    work: Work,
    shared: tuple,
    portions: Sequence[tuple],
    took: Callable[[int, float], object] = lambda number, seconds: None,
) -> list[pa.Table]:
    """The tables of the portions, each kept at its path. Only those whose path is missing are played; ``took`` is told
    the seconds of each."""
    missing = [number for number, path in enumerate(paths) if not path.exists()]
    for done in shards.play(work, shared, [portions[number] for number in missing]):
        number = missing[done.number]
        write_table(done.result, paths[number])
        took(number, done.seconds)
    return [read_table(path, schema) for path in paths]
