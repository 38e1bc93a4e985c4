"""Sends to MLflow what stages have said, from beside them: MLflow can neither hold a stage up nor fail it.

    python -m tasks.frame.sender FILE       # started by a stage, which holds the other end of standard input

It imports MLflow while the stage works, follows the stage's file (:mod:`tasks.frame.spool`), adds the machine's own
figures (processor, memory, GPU; by MLflow's monitors), and, when there is time, sends what earlier stages could not.
Where the server is away, or does not answer in :data:`TIMEOUT` seconds, the lines stay and are tried again. What the
server will never take, or a kill or a full disk cut short, is written to ``.scratch/spool/refused.jsonl`` with the
reason.
"""

from __future__ import annotations

import fcntl
import gc
import json
import logging
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from agentprm_core.datasets import atomic_write
from tasks.frame.home import spool_folder
from tasks.frame.secrets import redacted
from tasks.frame.spool import lies_at, now_ms, write_line

TIMEOUT = 5
"""Seconds that a request to a server may take."""
AGAIN = 15.0
"""Seconds until a server that was away is asked again, while the stage works."""
SAMPLED = 10.0
"""Seconds between looks at the machine."""
_LOOK = 0.5
"""Seconds between looks at the stage's file."""
NEVER = {
    "INVALID_PARAMETER_VALUE",
    "RESOURCE_DOES_NOT_EXIST",
    "RESOURCE_ALREADY_EXISTS",
    "BAD_REQUEST",
    "INVALID_STATE",
}
"""Codes of errors that the same request would meet again."""


REFUSED = "refused.jsonl"
"""What the server will never take, and lines that were cut short, with the reason."""


class Away(Exception):
    """The server did not take it now, and may take it later."""


class Delivery:
    """One stage's file on its way to MLflow: how far it came is kept beside it, and survives a kill."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._at, self._files = path.with_suffix(".at"), path.with_suffix(".files")
        self.state: dict = json.loads(self._at.read_text()) if self._at.exists() else {"bytes": 0}
        self.ended, self._store = False, None

    @property
    def began(self) -> bool:
        """Whether the stage said anything. One that is killed at once leaves an empty file."""
        return self.state["bytes"] > 0

    def send(self) -> int:
        """Send the lines that are there; how many. Raises Away where MLflow would not take one now."""
        count = 0
        with self.path.open("rb") as stream:
            stream.seek(self.state["bytes"])
            for line in stream:
                if not line.endswith(b"\n"):
                    break  # it is being written
                try:
                    said = json.loads(line)
                except ValueError as error:
                    _refuse(self.path, "a line that was cut short", error, {"line": line.decode(errors="replace")})
                else:
                    self._deliver(said)
                    self.ended |= said["say"] == "end"
                self.state["bytes"] += len(line)
                count += 1
                with atomic_write(self._at) as aside:
                    aside.write_text(json.dumps(self.state))
        return count

    def _deliver(self, said: dict) -> None:
        from tasks.frame.mlflow_store import Store  # two seconds of imports

        try:
            if self._store is None:
                self._store = Store(self.state.setdefault("runs", {}))
            self._store.take(said)
        except Exception as error:
            if _for_ever(error):
                _refuse(self.path, said["say"], error, said)
            else:
                raise Away(redacted(str(error)).splitlines()[0] if str(error) else type(error).__name__) from error

    def end_killed(self) -> None:
        """The stage is gone and has not said so."""
        with self.path.open("ab", buffering=0) as stream:
            if self.path.read_bytes()[-1:] not in (b"", b"\n"):
                stream.write(b"\n")  # the kill cut its last line short
            write_line(stream, {"say": "end", "at": now_ms(), "status": "KILLED", "campaign": False})

    def remove(self) -> None:
        """All of it is sent."""
        shutil.rmtree(self._files, ignore_errors=True)
        for path in (self._at, self.path):
            path.unlink(missing_ok=True)


def _for_ever(error: Exception) -> bool:
    ours = isinstance(error, KeyError | TypeError | AttributeError | AssertionError | FileNotFoundError)
    return ours or getattr(error, "error_code", None) in NEVER


def _refuse(path: Path, what: str, error: Exception, said: dict) -> None:
    reason = redacted(f"{type(error).__name__}: {error}")
    print(f"{path.name}: MLflow will not take {what}: {reason.splitlines()[0]}", file=sys.stderr)
    with (path.parent / REFUSED).open("ab", buffering=0) as stream:
        write_line(stream, {"file": path.name, "reason": reason, **said})


def flush(folder: Path | None = None, apart: Path | None = None) -> int:
    """Send what stages that are over left in ``folder`` (the checkout's), the oldest first; of how many stages it was.

    ``apart``: a file that somebody else sends. Raises Away where MLflow would not take all of it.
    """
    count = 0
    for path in sorted((folder or spool_folder()).glob("*.jsonl")):
        if path.name == REFUSED or path == apart:
            continue
        with _taken(path) as mine:
            if not mine:
                continue
            delivery = Delivery(path)
            delivery.send()
            if delivery.began and not delivery.ended:
                delivery.end_killed()
                delivery.send()
            delivery.remove()
            count += 1
    return count


@contextmanager
def _taken(path: Path) -> Iterator[bool]:
    """Whether nobody writes to the file or sends it; nobody else will meanwhile."""
    try:
        with path.open("rb+", buffering=0) as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield lies_at(stream, path)
    except (BlockingIOError, FileNotFoundError):
        yield False


def prepare() -> None:
    """MLflow as we use it: quick to give up, silent, nothing sent to its makers."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", str(TIMEOUT))
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    os.environ.setdefault("MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING", "true")
    # without its queue MLflow sends each span of a trace by a call of its own
    os.environ.setdefault("MLFLOW_ENABLE_ASYNC_TRACE_LOGGING", "true")
    os.environ.setdefault("MLFLOW_ASYNC_TRACE_LOGGING_MAX_SPAN_BATCH_SIZE", "2000")
    os.environ.setdefault("MLFLOW_ASYNC_TRACE_LOGGING_MAX_QUEUE_SIZE", "100000")  # what does not fit is dropped
    os.environ.setdefault("MLFLOW_ASYNC_TRACE_LOGGING_MAX_WORKERS", "1")  # a SQLite file has one writer
    import mlflow  # noqa: F401  (its import sets the levels of its loggers)

    for name in ("alembic", "mlflow", "mlflow.store.db.utils", "urllib3"):
        logging.getLogger(name).setLevel(logging.ERROR)


class Machine:
    """The machine's figures as lines of a stage's file, by MLflow's own monitors, one look every :data:`SAMPLED` s."""

    def __init__(self, path: Path) -> None:
        from mlflow.environment_variables import MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING
        from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

        wanted = MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING.get()
        self._monitor = SystemMetricsMonitor(run_id="") if wanted else None
        self._path, self._looks, self._next = path, 0, 0.0

    def look(self) -> None:
        """A line, where one is due."""
        if self._monitor is None or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + SAMPLED
        self._monitor.collect_metrics()
        metrics = [[f"system/{name}", value, self._looks] for name, value in self._monitor.aggregate_metrics().items()]
        for monitor in self._monitor.monitors:
            monitor.clear_metrics()
        self._looks += 1
        with self._path.open("ab", buffering=0) as stream:
            write_line(stream, {"say": "metrics", "at": now_ms(), "metrics": metrics, "on": ["stage"]})


def follow(path: Path) -> int:
    """Send what the stage says until it lets go of standard input; 0 if all was sent."""
    delivery, away_until, told = Delivery(path), 0.0, False
    prepare()
    machine = Machine(path)
    while not select.select([sys.stdin], [], [], _LOOK)[0]:
        machine.look()
        if time.monotonic() < away_until:
            continue
        try:
            _in_order(delivery)
            told = False
        except Away as away:
            away_until = time.monotonic() + AGAIN
            told = told or _tell(away, path)
    with _taken(path) as mine:  # else another stage found it first, and sends it
        if not mine:
            return 0
        try:
            if not _has_ended(path):
                delivery.end_killed()
            _in_order(delivery)
        except Away as away:
            _tell(away, path)
            return 1
        delivery.remove()
    return 0


def _in_order(delivery: Delivery) -> None:
    """What earlier stages said first: a later one may build on it."""
    flush(delivery.path.parent, apart=delivery.path)
    delivery.send()


def _tell(away: Away, path: Path) -> bool:
    later = "sent by the next stage, or by python -m tasks.commands.flush_tracking"
    print(f"MLflow is away ({away}): figures are kept in {path.parent} and {later}", file=sys.stderr)
    return True


def _has_ended(path: Path) -> bool:
    for line in path.read_bytes().splitlines()[-3:]:
        with suppress(ValueError):  # one that was cut short
            if json.loads(line)["say"] == "end":
                return True
    return False


def main() -> None:
    for ends in (signal.SIGINT, signal.SIGTERM):  # it ends after the stage, which gets them too
        signal.signal(ends, signal.SIG_IGN)
    status = follow(Path(sys.argv[1]))
    gc.freeze()  # the stage waits for the end of this process, and would wait while it looks through every module
    sys.exit(status)


if __name__ == "__main__":
    main()
