"""The line that a stage or a command ends with where memory ran out: what was asked for, and what to lower."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from agentprm_core.errors import out_of_memory

if TYPE_CHECKING:
    from tasks.frame.sections import Compute

TRAIN, PLAY = ("pass_tokens",), ("cache_mb", "slots")
FILLED_BY = {
    "sft": TRAIN, "prm": TRAIN, "policy": TRAIN,
    "rollout": PLAY, "label": PLAY, "collect": PLAY, "evaluate": PLAY, "compare": PLAY,
}  # fmt: skip
"""Stage → the keys of ``compute`` that decide what it holds at once, the one to lower first ahead."""
_MOST = 160
"""Characters of the error's own text."""


def not_enough(task: str, compute: Compute, error: BaseException) -> str:
    """``task``: the stage's, ``sft``; ``error``: see :func:`agentprm_core.errors.out_of_memory`."""
    return memory_line({f"compute.{key}": getattr(compute, key) for key in FILLED_BY.get(task, ())}, error)


def memory_line(keys: Mapping[str, int], error: BaseException) -> str:
    """``keys``: what decides how much is held at once, as people name it; the one to lower first ahead."""
    said = " ".join(str(error).split())[:_MOST] or type(error).__name__
    lower = ", then ".join(f"{key} (it is {value})" for key, value in keys.items())
    todo = f"lower {lower}" if keys else "end other programs, or use a machine that has more"
    return f"not enough memory: {todo}, and run the same again; {said}"


@contextmanager
def in_memory(command: str, keys: Mapping[str, int] | None = None) -> Iterator[None]:
    """A command whose memory ran out ends with :func:`memory_line`. ``command``: its name, ``evaluate``."""
    try:
        yield
    except Exception as error:
        if not out_of_memory(error):
            raise
        sys.exit(f"{command}: {memory_line(keys or {}, error)}")
