"""A command on a leash: it and all its descendants end when the holder lets go, or dies, however it dies.

The holder keeps the write end of a pipe to ``python leash.py COMMAND …``, which runs the command in a process group of
its own. When the pipe closes (the holder let go, was cancelled, or got a SIGKILL that no handler sees) the leash ends
the command's whole tree: SIGTERM, ten seconds of grace, SIGKILL. Descendants that left the group are found too
(torchrun starts its workers in sessions of their own), because on Linux the leash adopts the orphans of its tree.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import IO

import psutil

GRACE_SECONDS = 10.0
"""Between SIGTERM and SIGKILL. Shorter than the 30 s that Prefect's runner gives a cancelled flow."""

_PR_SET_CHILD_SUBREAPER = 36


@contextmanager
def leashed(
    command: Sequence[str], env: Mapping[str, str], stdout: int | IO[str] | None = None, lock: int | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Run ``command`` on a leash; when the block is left, by whatever way, no process of it remains.

    ``stdout`` is as for :class:`subprocess.Popen`; stderr goes the same way. ``lock`` is an open file that the leash
    keeps open, and so locked, until the tree is gone. The exit status is the command's own (128 + n where signal n
    ended it).
    """
    leash = subprocess.Popen(
        [sys.executable, __file__, *command],
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=None if stdout is None else subprocess.STDOUT,
        env=env,
        text=True,
        errors="replace",
        start_new_session=True,
        pass_fds=() if lock is None else (lock,),
    )
    try:
        yield leash
    finally:
        let_go(leash)
        leash.wait()
        if leash.stdout is not None:
            leash.stdout.close()


def let_go(leash: subprocess.Popen[str]) -> None:
    """End what is on the leash; returns at once. May be called from any thread, and more than once."""
    with suppress(BrokenPipeError):
        leash.stdin.close()


def _alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _descendants() -> list[psutil.Process]:
    return [process for process in psutil.Process().children(recursive=True) if _alive(process)]


def _end_tree() -> None:
    """SIGTERM to every descendant, SIGKILL to those still there after the grace.

    Waits by looking, never by waitpid: the command's exit status belongs to :func:`main`.
    """
    for end in (psutil.Process.terminate, psutil.Process.kill):
        for process in _descendants():
            with suppress(psutil.NoSuchProcess):
                end(process)
        deadline = time.monotonic() + GRACE_SECONDS
        while _descendants() and time.monotonic() < deadline:
            time.sleep(0.05)


def main(command: Sequence[str]) -> int:
    """Run ``command`` until it ends or standard input closes. Returns its exit status."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    ending = threading.Lock()

    def end_tree() -> None:
        with ending:
            _end_tree()

    def watch_holder() -> None:
        os.read(sys.stdin.fileno(), 1)
        end_tree()

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=end_tree).start())
    threading.Thread(target=watch_holder, daemon=True).start()
    code = child.wait()
    end_tree()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
