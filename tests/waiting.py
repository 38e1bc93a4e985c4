"""Waiting in a test for what another process or thread does; and ports for servers that a test starts."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

HOST = "127.0.0.1"
Found = TypeVar("Found")


def until(
    condition: Callable[[], Found],
    seconds: float = 120.0,
    said: Callable[[], str] = str,
    process: subprocess.Popen | None = None,
    every: float = 0.1,
) -> Found:
    """What ``condition`` gives, once that is something; it is asked ``every`` so many seconds.

    Raises AssertionError, with the end of what was ``said``, after ``seconds`` in vain and where ``process`` has ended.
    """
    deadline = time.monotonic() + seconds
    while True:
        # Both before the condition: it may have come true while this process waited for a core.
        late, status = time.monotonic() > deadline, process.poll() if process is not None else None
        if found := condition():
            return found
        assert status is None, f"it ended with status {status}\n{said()[-4000:]}"
        assert not late, f"in vain for {seconds:g} s\n{said()[-4000:]}"
        time.sleep(every)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]


@contextmanager
def nobody_listens() -> Iterator[int]:
    """A port that refuses every connection, and that no other process can be given meanwhile."""
    with socket.socket() as bound:
        bound.bind((HOST, 0))
        yield bound.getsockname()[1]
