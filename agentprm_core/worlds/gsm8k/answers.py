"""When two numbers are the same answer."""

from __future__ import annotations

import re

_NUMBER = re.compile(r"([0-9]*)(?:\.([0-9]*))?")
_MARKS = "$€£%* \t"
"""What may stand around a number."""


def normalise(text: str) -> str | None:
    """A number without commas, zeros at its ends, and what stands around it: currency, percent, blanks, a full stop.
    ``$1,080.00.`` → ``1080``. None where it is no number. As text: it may have any number of digits."""
    bare = text.strip().strip(_MARKS).removesuffix(".").strip(_MARKS)
    negative = bare[:1] in ("-", "−")
    found = _NUMBER.fullmatch(bare[negative:].strip(_MARKS).replace(",", ""))
    if not found or not any(found.groups("")):
        return None
    whole, fraction = found[1].lstrip("0") or "0", (found[2] or "").rstrip("0")
    number = f"{whole}.{fraction}" if fraction else whole
    return f"-{number}" if negative and number != "0" else number
