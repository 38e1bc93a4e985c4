"""Portions in several processes of this machine."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait
from multiprocessing.shared_memory import SharedMemory
from typing import Any, cast

import torch

from agentprm_core.errors import DataError
from agentprm_core.progress import progress
from agentprm_core.shards.base import Done, Refused, Work, accepted, done_elsewhere, on_cpu, on_device


class Processes:
    """``count`` processes with ``threads`` threads of torch each. They start with the first portion and stay. What
    portions share, the weights among it, lies in memory that all of them read, once each. With ``device`` cuda they
    share one GPU, and each has the weights there."""

    def __init__(self, count: int, *, threads: int, device: str = "cpu") -> None:
        self.players, self._threads, self._device = count, threads, device
        self._pool: ProcessPoolExecutor | None = None

    def play(self, work: Work, shared: tuple, portions: Sequence[tuple]) -> Iterator[Done]:
        """A process that dies ends the work: raises DataError."""
        if not portions:
            return
        pool = self._pool = self._pool or self._started()
        sent = pickle.dumps((work, tuple(map(on_cpu, shared)), self._device))
        memory = SharedMemory(create=True, size=len(sent))
        memory.buf[: len(sent)] = sent  # pyright: ignore[reportOptionalSubscript]: it is open
        try:
            playing = [pool.submit(_play, memory.name, number, portion) for number, portion in enumerate(portions)]
            with progress(len(portions), "portion") as bar:
                for future in as_completed(playing):
                    bar.update()
                    yield accepted(future.result())
        except BrokenProcessPool as error:
            self.close()
            raise DataError(
                "a process that plays portions ended without a word; finished portions are kept, run the same again "
                "(where memory ran out, with fewer processes, compute.slots or compute.cache_mb)"
            ) from error
        except BaseException:
            self.close()
            raise
        finally:
            memory.close()
            memory.unlink()

    def close(self) -> None:
        """End the processes, also while they play."""
        if self._pool is not None:
            for process in list((self._pool._processes or {}).values()):
                process.kill()
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def _started(self) -> ProcessPoolExecutor:
        spawn = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(self.players, mp_context=spawn, initializer=_begin, initargs=(self._threads,))


_made: dict[str, Callable[..., Any]] = {}
"""Of this process: the player, by the name of the memory that it was made from."""


def _begin(threads: int) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)


def _play(name: str, number: int, portion: tuple) -> Done | Refused:
    if name not in _made:
        _made.clear()  # what was made before gives its memory back first
        memory = SharedMemory(name)
        try:
            work, shared, device = pickle.loads(cast(memoryview, memory.buf))
        finally:
            memory.close()
        _made[name] = work(*(on_device(part, device) for part in shared))
    return done_elsewhere(_made[name], number, portion)


def _end_with_parent() -> None:
    """A parent that was killed cannot say so."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)
