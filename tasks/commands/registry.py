"""MLflow for a command that somebody waits for: it answers within seconds, or one line says why not."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentprm_core.errors import DataError
from tasks.frame.mlflow_store import connect
from tasks.frame.secrets import redacted
from tasks.frame.sender import prepare
from tasks.frame.tracking import tracking_uri


@contextmanager
def asked_mlflow() -> Iterator[tuple]:
    """:func:`connect` for a command that somebody waits for. Raises DataError where MLflow does not answer, now or in
    the block, and where its database would be one in a folder in which no campaign ran."""
    _require_database()
    prepare()
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield connect()
    except (MlflowException, SQLAlchemyError, OSError, ImportError) as error:
        raise DataError(
            f"MLflow at {redacted(tracking_uri())} does not answer ({_reason(error)}): start it, or set "
            "MLFLOW_TRACKING_URI"
        ) from error


def _require_database() -> None:
    """MLflow would make an empty one in whatever folder this is."""
    kind, _, path = tracking_uri().partition(":///")
    if kind == "sqlite" and "MLFLOW_TRACKING_URI" not in os.environ and not Path(path).exists():
        raise DataError(f"{path}: not there: run it in the folder of a campaign that ran, or set MLFLOW_TRACKING_URI")


def _reason(error: Exception) -> str:
    """Of a connection that failed the system's words; MLflow's own go round them in several layers."""
    said = redacted(str(error)).strip() or type(error).__name__
    found = re.search(r"\[Errno -?\d+\] ([\w ]+)|(Read timed out)", said)
    return next(filter(None, found.groups())) if found else said.splitlines()[0][:200]
