"""The DVC remote that hosts share: what a stage needs comes from it, and what a stage wrote goes to it.

DVC says of a transfer that fails how many files it was. Why is in its log, which is read here.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from dvc.config import NoRemoteError
from dvc.repo import Repo
from dvc.stage.cache import RunCacheNotFoundError

from flows.snapshot import SnapshotError
from tasks.frame.secrets import redacted

_LOGGERS = ("dvc_data.hashfile.transfer", "dvc_objects.fs.generic", "dvc_data.index.fetch")
_LONGEST = 300
"""Characters of what the store said."""


class Remote:
    """The default DVC remote of the project at ``root``. The run cache and the portions of :mod:`flows.mirror` share a
    connection, since each new one to a bucket takes time.

    Raises SnapshotError where there is none.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        with _explained(root, "the DVC remote cannot be used"), Repo(str(root)) as repo:
            self._runs = repo.cloud.get_remote_odb(None, hash_name="md5-dos2unix")
        self.fs, self.path = self._runs.fs, self._runs.path

    def pull(self, stage: str, needs: Sequence[str]) -> None:
        """The outs of the stages ``needs``; and those of ``stage``, where a host has run it with the same inputs.

        ``dvc repro --pull`` would do the second part, but reach the store anew. Raises SnapshotError where the remote
        has not all that the stage needs.
        """
        with _explained(self._root, f"what {stage} needs cannot be pulled"), Repo(str(self._root)) as repo:
            if needs:
                repo.pull(targets=list(needs))
            repo.stage_cache.pull(None, odb=self._runs)
            with repo.lock, suppress(RunCacheNotFoundError):
                repo.stage_cache.restore(repo.stage.load_one(name=stage), pull=True)

    def push(self, stage: str) -> None:
        """The outs of ``stage`` and its entry of the run cache. Raises SnapshotError where the remote did not take
        all."""
        after = "It is in this host's cache: run the campaign again once the remote takes it"
        with _explained(self._root, f"what {stage} wrote cannot be pushed", after), Repo(str(self._root)) as repo:
            repo.push(targets=[stage])
            repo.stage_cache.push(None, odb=self._runs)


@contextmanager
def _explained(root: Path, what: str, after: str = "") -> Iterator[None]:
    heard = _Heard()
    for name in _LOGGERS:
        logging.getLogger(name).addHandler(heard)
    try:
        yield
    except NoRemoteError as error:
        raise SnapshotError(
            f"{root}: a stage on a worker needs a DVC remote: dvc remote add --default NAME URL"
        ) from error
    except Exception as error:  # DVC's own, the store's, the network's
        why = heard.why or _line(error)
        raise SnapshotError(". ".join([f"{root}: {what}: {why}", *([after] if after else [])])) from error
    finally:
        for name in _LOGGERS:
            logging.getLogger(name).removeHandler(heard)


class _Heard(logging.Handler):
    """The first reason that was logged."""

    why = ""

    def emit(self, record: logging.LogRecord) -> None:
        if not self.why and record.exc_info and record.exc_info[1]:
            self.why = _line(record.exc_info[1])


def _line(error: BaseException) -> str:
    return redacted(" ".join(str(error).split()) or type(error).__name__)[:_LONGEST]
