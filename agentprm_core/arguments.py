"""Command lines: types of options, and what a wrong line is answered with.

Numbers in a range, addresses, a device that is there: argparse says the message.
"""

from __future__ import annotations

import math
import re
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeVar

from agentprm_core.config import LARGEST_SEED

T = TypeVar("T")


def called(prog: str) -> str:
    """What a command is called in its messages: as it was typed, ``check-world`` or ``check_world``."""
    return prog.split()[-1].rpartition(".")[2]


class OneLineParser(ArgumentParser):
    """Answers a wrong command line with one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{called(self.prog)}: {message} ({self.prog} --help)\n")


def at_least(least: int) -> Callable[[str], int]:
    """Whole numbers from ``least`` on."""
    return _whole(least, math.inf, f"that is at least {least}")


def within(least: int, most: int) -> Callable[[str], int]:
    """Whole numbers from ``least`` to ``most``."""
    return _whole(least, most, f"from {least} to {most}")


def _whole(least: int, most: float, which: str) -> Callable[[str], int]:
    def whole(value: str) -> int:
        if not value.isdecimal() or not least <= int(value) <= most:
            raise ArgumentTypeError(f"{value!r} is not a whole number {which}")
        return int(value)

    return whole


count = at_least(1)
any_seed = within(0, LARGEST_SEED)
port = within(1, 65535)


def above_zero(value: str) -> float:
    number = _number(value)
    if not 0 < number < math.inf:
        raise ArgumentTypeError(f"{value!r} is not a number above 0")
    return number


def not_negative(value: str) -> float:
    number = _number(value)
    if not 0 <= number < math.inf:
        raise ArgumentTypeError(f"{value!r} is not a number that is at least 0")
    return number


def share(value: str) -> float:
    number = _number(value)
    if not 0 < number < 1:
        raise ArgumentTypeError(f"{value!r} is not a number above 0 and below 1")
    return number


def share_or_all(value: str) -> float:
    number = _number(value)
    if not 0 <= number <= 1:
        raise ArgumentTypeError(f"{value!r} is not a number from 0 to 1")
    return number


def listed(kind: Callable[[str], T] = str) -> Callable[[str], tuple[T, ...]]:
    """Values with commas between them, each read by ``kind``. None is empty, and none is there twice: it would be
    played twice, and count twice where tests are corrected for their number."""

    def values(value: str) -> tuple[T, ...]:
        parts = value.split(",")
        if not all(part.strip() for part in parts):
            raise ArgumentTypeError(f"{value!r} has an empty name: one comma between two names, and none at the ends")
        found = tuple(map(kind, parts))
        if (place := repeated(found)) is not None:
            raise ArgumentTypeError(f"{value!r} has {parts[place]!r} twice: name each once")
        return found

    return values


def repeated(values: Sequence[object]) -> int | None:
    """The place of the first value that is there a second time; None where each is there once."""
    return next((place for place, value in enumerate(values) if value in values[:place]), None)


def address(value: str) -> str:
    """Of a server. One with a password is refused, and not repeated: it would stand in logs."""
    if not re.fullmatch(r"https?://[^\s,@]+", value):
        what = "an address with a password" if "@" in value else repr(value)
        raise ArgumentTypeError(f"{what} is not allowed: http://HOST:8000/v1")
    return value


def device(value: str) -> str:
    """``cpu``, ``cuda`` or ``cuda:N``, where there is one."""
    kind, colon, number = value.partition(":")
    if kind not in ("cpu", "cuda") or (colon and (kind == "cpu" or not number.isdecimal())):
        raise ArgumentTypeError(f"{value!r} is not cpu, cuda or cuda:N")
    if kind == "cuda":
        import torch  # late: only here

        there = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if int(number or 0) >= there:
            raise ArgumentTypeError(f"{value!r}: PyTorch sees {there} GPUs here; cpu is the default")
    return value


def _number(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return math.nan
