"""MLflow for a command that somebody waits for: it answers within seconds, or one line says why not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from agentprm_core.errors import DataError
from tasks.frame.mlflow_store import connect
from tasks.frame.secrets import redacted
from tasks.frame.sender import prepare
from tasks.frame.tracking import tracking_uri


@contextmanager
def asked_mlflow() -> Iterator[tuple]:
    """:func:`connect` for a command that somebody waits for. Raises DataError where MLflow does not answer, now or in
    the block."""
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


def _reason(error: Exception) -> str:
    """Of a connection that failed the system's words; MLflow's own go round them in several layers."""
    said = redacted(str(error)).strip() or type(error).__name__
    found = re.search(r"\[Errno -?\d+\] ([\w ]+)|(Read timed out)", said)
    return next(filter(None, found.groups())) if found else said.splitlines()[0][:200]
