"""What a long stage leaves in its scratch, copied to the DVC remote while it runs: another worker can go on from it.

Finished portions are named by a digest of what decides them, and a training's state is whole once its ``state.json`` is
there. So a copy is good wherever it came from, and two workers may write the same one.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from flows.remote import Remote

SECONDS = 1.0
"""Between two looks for something new."""
_WHOLE = "state.json"
"""Written last of a training's state, and so copied last."""


class Mirror:
    """``scratch`` of one stage, and its copy at ``prefix`` of a file system of DVC's."""

    def __init__(self, scratch: Path, fs, prefix: str) -> None:
        self.scratch, self._fs, self._prefix = scratch, fs, prefix
        self._copied: dict[str, tuple[int, int]] = {}

    def fetch(self) -> int:
        """Bring what is at ``prefix`` and not in ``scratch``; how many files. A state that goes away is left out."""
        found = [self._fs.relparts(path, self._prefix) for path in self._list()]
        names = sorted(("/".join(parts) for parts in found), key=_last_whole)
        gone, brought = set[Path](), 0
        for name in names:
            path = self.scratch / name
            if name.endswith(".aside") or path.exists() or path.parent in gone:
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
            try:
                self._fs.get_file(self._at(name), str(aside))
                aside.replace(path)
                brought += 1
            except FileNotFoundError:
                gone.add(path.parent)
            finally:
                aside.unlink(missing_ok=True)
        self._copied = {name: stamp for name, stamp in self._here().items() if name in names}
        return brought

    def copy(self) -> int:
        """Copy what is new or changed in ``scratch``, and take away what went from it; how many files were copied."""
        here, copied = self._here(), 0
        for name, stamp in here.items():
            if self._copied.get(name) == stamp:
                continue
            aside = self._at(f"{name}.{uuid.uuid4().hex}.aside")
            try:
                self._fs.makedirs(self._fs.parent(aside))
                self._fs.put_file(str(self.scratch / name), aside)
                self._fs.move(aside, self._at(name))
            except FileNotFoundError:  # an older state, removed meanwhile
                continue
            self._copied[name] = stamp
            copied += 1
        for name in sorted(self._copied.keys() - here.keys(), key=_last_whole, reverse=True):
            with suppress(FileNotFoundError):
                self._fs.remove(self._at(name))
            del self._copied[name]
        return copied

    def clear(self) -> None:
        """Nothing is left to go on from."""
        for path in self._list():
            with suppress(FileNotFoundError):
                self._fs.remove(path)

    @contextmanager
    def watching(self, say: Callable[[str], object], seconds: float = SECONDS) -> Iterator[None]:
        """:meth:`copy` every ``seconds`` while the block runs, and at its end. A copy that fails is said, once; the
        stage goes on."""
        over, said = threading.Event(), set[str]()

        def copy() -> None:
            try:
                self.copy()
            except Exception as error:  # a remote that is away must not end a stage
                if str(error) not in said:
                    say(f"portions are not copied to the remote: {error}")
                said.add(str(error))

        def watch() -> None:
            while not over.wait(seconds):
                copy()

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            copy()

    def _at(self, name: str) -> str:
        return self._fs.join(self._prefix, *name.split("/"))

    def _list(self) -> list[str]:
        self._fs.fs.invalidate_cache()  # an S3 store's listing is kept else, for as long as the process lives
        return list(self._fs.find(self._prefix)) if self._fs.exists(self._prefix) else []

    def _here(self) -> dict[str, tuple[int, int]]:
        """Whole files of ``scratch``, states' last: {name: (size, time)}. What is written aside has a dot before it."""
        found = {}
        for path in self.scratch.rglob("*"):
            name = path.relative_to(self.scratch)
            with suppress(FileNotFoundError):
                if path.is_file() and not any(part.startswith(".") for part in name.parts):
                    stat = path.stat()
                    found[name.as_posix()] = (stat.st_size, stat.st_mtime_ns)
        return dict(sorted(found.items(), key=lambda item: _last_whole(item[0])))


def mirror(remote: Remote, campaign: str, stage: str, scratch: Path) -> Mirror:
    """Of ``stage``, in ``remote``, beside its data."""
    return Mirror(scratch, remote.fs, remote.fs.join(remote.path, "campaigns", campaign, stage))


def _last_whole(name: str) -> tuple[bool, str]:
    return name.rpartition("/")[2] == _WHOLE, name
