"""Pages to look at: Jinja templates beside this file, each page one file that asks the network for nothing.

What worlds, policies and people write goes in as text: everything is escaped.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

_NUMBER = re.compile(r"[-+]?\d[\d.,]*(e[-+]?\d+)?%?")
_FOLDED = 160
"""Characters from which on a text is folded."""


Q_SAYS = (
    "A PRM that learnt from outcomes gives a sure win 1 and a sure loss 0. One of InversePRM learnt without them: "
    "it gives 1 where play looks like an expert's, and 0 where it does not."
)
"""What the ends of the scale are. True of every critic."""


def render(template: str, **values: object) -> str:
    """A page of ``TEMPLATE.html.jinja``. The same values give the same text."""
    return _environment().get_template(f"{template}.html.jinja").render(**values)


def first_words(text: str) -> str:
    """The beginning of a text, up to a word; the text itself where it is short."""
    if len(text) <= _FOLDED:
        return text
    return text[: text.rfind(" ", 0, _FOLDED) if " " in text[:_FOLDED] else _FOLDED] + " …"


def numeric(cell: object) -> bool:
    """Whether a cell of a table is a number, or a text that begins as one and is short."""
    return isinstance(cell, int | float) or (isinstance(cell, str) and _NUMBER.fullmatch(cell) is not None)


def percent(share: float) -> str:
    return f"{share:.1%}"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"first_words": first_words, "percent": percent}
    environment.globals |= {"q_says": Q_SAYS}
    environment.tests |= {"numeric": numeric}
    return environment
