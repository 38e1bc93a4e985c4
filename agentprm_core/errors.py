"""Errors that are not faults of the code, and what their lines say."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class DataError(ValueError):
    """Data that cannot be used, or that params.yaml asks too much of.

    Says what, where, and the key of params.yaml to change where one decides it: it is shown without a traceback.
    """


class CheckpointError(DataError):
    """A checkpoint that cannot be used: missing, half-written, or not made for its tokenizer."""


class ServerError(DataError):
    """A server that does not answer, or not as it should. Names the endpoint, the request and what was said."""


class SilentServer(ServerError):
    """A server that does not answer at all: it has ended, or cannot be reached. The same can be asked of it later."""


EXPECTED = (
    DataError,
    FileNotFoundError,
    FileExistsError,
    NotADirectoryError,
    IsADirectoryError,
    PermissionError,
    FloatingPointError,
)
"""Errors that speak of the data, the folders and the parameters, not of the code: a program ends with their line. A
FloatingPointError is a training whose loss is no number any more."""


_NO_MEMORY = (
    "DefaultCPUAllocator",
    "CUDA error: out of memory",
    "std::bad_alloc",
    "failed to map segment from shared object",
    "annot allocate memory",
)
"""What errors without a type of their own say. The last is the system's, whatever its first letter."""


def nearest(name: str, there: Iterable[str]) -> str:
    """The one of ``there`` that ``name`` may be a slip of, in whatever case; empty where none is near. One that begins
    with another letter has to be nearer."""
    asked, known = name.lower(), {one.lower(): one for one in there}
    for found in difflib.get_close_matches(asked, known):
        if found[:1] == asked[:1] or difflib.SequenceMatcher(None, found, asked).ratio() >= 0.8:
            return known[found]
    return ""


def out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out: Python's, NumPy's or Arrow's, torch's on a CPU or a GPU, which has types and texts of its
    own, or that of a library that is loaded."""
    if isinstance(error, MemoryError) or any(kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__):
        return True
    return isinstance(error, RuntimeError | ImportError | OSError) and any(text in str(error) for text in _NO_MEMORY)
