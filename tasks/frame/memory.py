"""The line that a stage ends with where memory ran out: what was asked for, and the key of params.yaml to lower."""

from __future__ import annotations

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
    said = " ".join(str(error).split())[:_MOST] or type(error).__name__
    keys = [f"compute.{key} (it is {getattr(compute, key)})" for key in FILLED_BY.get(task, ())]
    todo = f"lower {', then '.join(keys)}" if keys else "end other programs, or use a machine that has more"
    return f"not enough memory: {todo}, and run the same again; {said}"
