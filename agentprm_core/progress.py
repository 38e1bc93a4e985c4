"""How far long work has come: a bar on a terminal, else a line about every thirty seconds.

Work that is done sooner says nothing where nobody watches. Lines go to standard error, as the bar does. Who wants to
know more while it runs is a :class:`Watcher`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import Protocol

from tqdm import tqdm

EVERY_S = 30.0
"""Seconds between lines."""


class Progress(Protocol):
    def update(self) -> object:
        """One more is done."""


class Watcher(Protocol):
    """Is told what work comes to while it runs. Answers at once, raises nothing and changes nothing."""

    def turns(self, count: int) -> object:
        """So many actions were done in worlds."""

    def episode(self, won: bool, tokens: int) -> object:
        """An episode ended; the tokens, written and read, that it took."""

    def trained(self, step: int, figures: Mapping[str, float]) -> object:
        """An entry of a training's log."""

    def done(self, unit: str, done: int, total: int) -> object:
        """So many of the work's parts are done."""


class Nobody:
    """Watches nothing."""

    def turns(self, count: int) -> None: ...
    def episode(self, won: bool, tokens: int) -> None: ...
    def trained(self, step: int, figures: Mapping[str, float]) -> None: ...
    def done(self, unit: str, done: int, total: int) -> None: ...


_watchers: list[Watcher] = [Nobody()]


def watcher() -> Watcher:
    """Who watches this process's work."""
    return _watchers[-1]


@contextmanager
def watched_by(new: Watcher) -> Iterator[None]:
    """``new`` is told of all that is done in the block."""
    _watchers.append(new)
    try:
        yield
    finally:
        _watchers.pop()


@contextmanager
def progress(total: int, unit: str, done: int = 0) -> Iterator[Progress]:
    """Shows how many of ``total`` are done. ``unit`` names one of them (``step``); ``done``: were done before."""
    if not sys.stderr.isatty():
        yield Lines(total, unit, done)
        return
    with _Bar(total=total, unit=unit, initial=done, leave=None) as bar:  # None: one within another goes when it ends
        yield bar


class _Bar(tqdm):
    """One that the watcher hears of."""

    def update(self, n: float | None = 1) -> bool | None:
        shown = super().update(n)
        watcher().done(self.unit, int(self.n), int(self.total))
        return shown


class Lines:
    """A line when thirty seconds have passed since the last."""

    def __init__(self, total: int, unit: str, done: int = 0) -> None:
        self._total, self._unit = total, unit
        self._before = self._done = done
        self._start = self._told = monotonic()

    def update(self) -> None:
        self._done += 1
        watcher().done(self._unit, self._done, self._total)
        now = monotonic()
        if now - self._told >= EVERY_S and self._done < self._total:
            self._told = now
            print(self._line(now - self._start), file=sys.stderr, flush=True)

    def _line(self, seconds: float) -> str:
        rate = (self._done - self._before) / seconds
        left = round((self._total - self._done) / rate)
        minutes, hours = left // 60, left // 3600
        clock = f"{hours}:{minutes % 60:02}:{left % 60:02}" if hours else f"{minutes}:{left % 60:02}"
        speed = f"{rate:.1f} {self._unit}s/s" if rate >= 1 else f"{1 / rate:.1f} s/{self._unit}"
        return f"{self._done} of {self._total} {self._unit}s, {speed}, {clock} left"
