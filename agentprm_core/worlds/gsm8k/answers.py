"""When two numbers are the same answer."""

from __future__ import annotations

import re
from decimal import Decimal

_NUMBER = re.compile(r"[-−]?(?:\d+(?:\.\d*)?|\.\d+)")
_DROPPED = str.maketrans("", "", ",$€£%*")


def normalise(text: str) -> str | None:
    """A number without commas, currency, percent, blanks, a full stop after it and zeros at its end: ``$1,080.00.`` →
    ``1080``. None where it is no number."""
    bare = text.strip().translate(_DROPPED).strip().removesuffix(".")
    if not _NUMBER.fullmatch(bare):
        return None
    number = Decimal(bare.replace("−", "-"))
    return f"{number:f}".rstrip("0").rstrip(".") if number % 1 else str(int(number))
