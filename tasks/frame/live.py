"""What a stage comes to while it runs: its figures every few seconds, as the core reports them.

Of play: turns, turns a second, episodes, the success so far, tokens. Of training: its curve, step by step. Of both: how
far it is, and the memory that the process holds. Their step is the second of the stage, the curve's its own.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence

import psutil

EVERY_S = 10.0
"""Seconds between figures."""
Say = Callable[[Sequence[Sequence], bool], None]
"""Told (name, value, step) of some figures, and whether they are points of a training's curve."""


class Live:
    """An :class:`agentprm_core.progress.Watcher`. ``task`` names the curve: ``sft.loss``."""

    def __init__(self, task: str, say: Say, every: float = EVERY_S) -> None:
        self._task, self._say, self._every = task, say, every
        self._start = self._told = time.monotonic()
        self._turns = self._before = self._episodes = self._won = self._tokens = 0
        self._done: dict[str, float] = {}
        self._process = psutil.Process()

    def turns(self, count: int) -> None:
        """So many actions were done in worlds."""
        self._turns += count
        self._tell()

    def episode(self, won: bool, tokens: int) -> None:
        """One ended; the tokens that finding it cost."""
        self._episodes += 1
        self._won += won
        self._tokens += tokens
        self._tell()

    def trained(self, step: int, figures: Mapping[str, float]) -> None:
        """An entry of a training's log."""
        self._say([[f"{self._task}.{name}", value, step] for name, value in figures.items() if name != "step"], True)
        self._tell()

    def done(self, unit: str, done: int, total: int) -> None:
        """So many of the work's parts are done."""
        self._done = {f"{unit}s": done, f"{unit}s_in_all": total}
        self._tell()

    def close(self) -> None:
        """The last figures."""
        self._tell(last=True)

    def _tell(self, last: bool = False) -> None:
        now = time.monotonic()
        if now - self._told < self._every and not last:
            return
        figures: dict[str, float] = dict(self._done)
        if self._turns:
            rate = (self._turns - self._before) / max(now - self._told, 1e-9)
            figures |= {"turns": self._turns, "turns_per_second": rate}
        if self._episodes:
            figures |= {"episodes": self._episodes, "success": self._won / self._episodes, "tokens": self._tokens}
        figures["memory_mb"] = self._process.memory_info().rss / 2**20
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
            figures["gpu_memory_mb"] = torch.cuda.max_memory_allocated() / 2**20
        second = round(now - self._start)
        self._told, self._before = now, self._turns
        self._say([[f"live.{name}", value, second] for name, value in figures.items()], False)
