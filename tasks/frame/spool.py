"""What a stage has to say to MLflow, on disk until MLflow has taken it.

A stage writes lines of JSON to a file of its own in ``.scratch/spool`` of the checkout: that takes no server and no
time. A process beside the stage sends them (:mod:`tasks.frame.sender`). What it could not send lies there, and the
next stage sends it.

While the stage lives it holds a lock on its file. A file without that lock whose last line is no ``end`` is of a stage
that was killed.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from io import FileIO
from pathlib import Path

from tasks.frame.home import spool_folder
from tasks.frame.secrets import redacted

_WRITING = threading.Lock()


class Spool:
    """A file of lines, one for each thing to say. Nothing that happens to it fails the stage."""

    def __init__(self, stage: str, folder: Path | None = None) -> None:
        folder = folder or spool_folder()
        self.name = f"{time.time_ns()}-{stage}-{os.getpid()}"
        self.path = folder / f"{self.name}.jsonl"
        self._files, self._kept, self._stream = self.path.with_suffix(".files"), 0, None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._stream = self._locked()
        except OSError as error:
            self._give_up(error)

    def say(self, what: str, **fields: object) -> None:
        """One more line: what is to be done (:mod:`tasks.frame.sender`), when it was said, and with what."""
        if self._stream is None:
            return
        try:
            write_line(self._stream, {"say": what, "at": now_ms(), **fields})
        except OSError as error:
            self._give_up(error)

    def keep(self, path: Path) -> str | None:
        """A copy of a file or folder as it is now, for MLflow: the next run may overwrite it. Its path."""
        if self._stream is None:
            return None
        self._kept += 1
        copy = self._files / str(self._kept) / path.name
        try:
            copy.parent.mkdir(parents=True)
            if path.is_dir():
                shutil.copytree(path, copy)
            else:
                shutil.copy(path, copy)
        except OSError as error:
            self._give_up(error)
            return None
        return str(copy)

    def close(self) -> None:
        """Let go of the file; whoever sends it now knows that no line will come."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _locked(self) -> FileIO:
        """The file, with its lock. A sender that finds it before it is locked takes it for one of a stage that was
        killed before it said anything, and removes it."""
        while True:
            stream = self.path.open("ab", buffering=0)
            fcntl.flock(stream, fcntl.LOCK_EX)
            if lies_at(stream, self.path):
                return stream
            stream.close()

    def _give_up(self, error: OSError) -> None:
        print(f"{self.path}: cannot be written ({error.strerror}): MLflow will not see the rest", file=sys.stderr)
        self._stream = None


def write_line(stream: FileIO, said: Mapping) -> None:
    """A line of JSON, without secrets, at the end of a file that is opened to append to and has no buffer. It is one
    write, so that no line of another process comes between its parts. Raises OSError."""
    line = (redacted(json.dumps(said, default=str)) + "\n").encode()
    with _WRITING:
        while line:  # what a full disk did not take is tried once more, and raises
            line = line[os.write(stream.fileno(), line) :]


def lies_at(stream: FileIO, path: Path) -> bool:
    """Whether the open file is still the one at ``path``."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(stream.fileno()), path.stat())
    return False


def now_ms() -> int:
    return int(time.time() * 1000)
