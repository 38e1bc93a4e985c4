"""Tables that outlive a kill: each in a file named by a digest of what decides it, made where the file is missing."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from agentprm_core.datasets import read_table, write_table


def digest(*decides: object) -> str:
    """Twelve hexadecimal digits of all that ``decides`` a table, by its ``repr``."""
    return hashlib.sha256(repr(decides).encode()).hexdigest()[:12]


def kept(path: Path, schema: pa.Schema, make: Callable[[], pa.Table]) -> pa.Table:
    """The table at ``path``; what ``make`` gives is written there first where there is none."""
    if not path.exists():
        write_table(make(), path)
    return read_table(path, schema)
