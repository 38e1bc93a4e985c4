"""Great Expectations in a process of its own, which imports it (three seconds) while the stage does its work.

The keeper reads one gate at a time from standard input and answers on standard output, both as pickles between two
processes of one program. When the stage ends, however it ends, its input closes and it goes.
"""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
from collections.abc import Sequence

from agentprm_core.expectations import Check
from tasks.frame.gates import GateError, Result


class Gatekeeper:
    """Start it early, ask it when the data is there."""

    def __init__(self) -> None:
        modules = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}  # the same as this process has
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tasks.frame.gatekeeper"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | modules,
        )
        assert self._process.stdin is not None and self._process.stdout is not None  # both are pipes
        self._asks, self._answers = self._process.stdin, self._process.stdout

    def run_gate(self, stage: str, checks: Sequence[Check], before: Sequence[Result] = ()) -> list[Result]:
        """:func:`tasks.frame.gates.run_gate`, over there. Raises RuntimeError where the keeper died (it said why)."""
        try:
            pickle.dump((stage, checks, before), self._asks)
            self._asks.flush()
            answer = pickle.load(self._answers)
        except (BrokenPipeError, EOFError):
            raise RuntimeError(f"{stage}: the gatekeeper ended with status {self._process.wait()}") from None
        if isinstance(answer, GateError):
            raise answer
        return answer

    def end(self) -> None:
        self._asks.close()
        self._process.wait()
        self._answers.close()


NOT_NEEDED = ("sqlalchemy", "boto3")
"""Great Expectations does without them where they cannot be imported: gates look at tables in memory, not at databases
or buckets. They are a fifth of its import."""


def main() -> None:
    """Answer until standard input closes."""
    sys.modules.update(dict.fromkeys(NOT_NEEDED))  # pyright: ignore[reportArgumentType, reportCallIssue]: None is for "cannot"
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")  # read at import
    from tasks.frame.gates import keeps_gates, run_gate

    asked, answers = os.fdopen(os.dup(sys.stdin.fileno()), "rb"), os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever a library prints is not an answer
    if keeps_gates():
        import great_expectations  # noqa: F401

    while asked.peek(1):
        stage, checks, before = pickle.load(asked)
        try:
            answer = run_gate(stage, checks, before)
        except GateError as error:
            answer = error
        pickle.dump(answer, answers)
        answers.flush()
    gc.freeze()  # else the interpreter looks through every module before it ends, for a second


if __name__ == "__main__":
    main()
