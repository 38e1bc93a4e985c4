"""A shopper by rule: searches for the goal's words, opens what fits the price, goes back if the options are not there,
chooses them, buys. It reads the goal and the pages and nothing else."""

from __future__ import annotations

import re
from dataclasses import dataclass

from agentprm_core.worlds.base import NothingLeft, Observation
from agentprm_core.worlds.webshop.pages import BUY, PREVIOUS, SEP, SUB_PAGES

LOOKS = 4
"""Products it opens before it takes the one that has most of the options."""
_NEAR = 40.0
"""A goal's price limit is at most this many dollars above the next multiple of ten over the price."""
_LIMIT = re.compile(r", and price lower than ([\d.]+) dollars$")
_OPTIONS = re.compile(r" with ((?:(?! with )[a-z ])+: .*)$")
_NEXT_OPTION = re.compile(r", and (?=[a-z ]+: )")


@dataclass(frozen=True, slots=True)
class Wish:
    """What a goal's text says."""

    words: str
    """What it should be: without "Find me", options and price."""
    options: tuple[str, ...]
    limit: float
    """In dollars; infinite where none is named."""

    @property
    def query(self) -> str:
        """The words, and the option values three times: a product that has them all is then found far above others."""
        return " ".join([self.words, *self.options * 3])


class Shopper:
    """One episode for one goal."""

    def __init__(self, goal: str) -> None:
        self._wish = read_goal(goal)
        self._has: dict[str, int] = {}
        """Products that were opened → how many of the options they have."""
        self._open, self._chosen, self._last = "", set(), ""

    def act(self, seen: Observation, done: str | None = None) -> str:
        """The next command. Raises NothingLeft where its search found nothing."""
        self._last = done or self._last
        self._follow(self._last.removeprefix("click[").removesuffix("]"))
        texts, search = seen.text.split(SEP), f"search[{self._wish.query}]"
        if texts[0] == "WebShop":
            self._last = search
        elif f"click[{BUY}]" in seen.admissible:
            self._last = self._at_product(seen.admissible)
        elif "Next >" in texts:
            shown = _shown(texts[texts.index("Next >") + 1 :], seen.admissible)
            if not shown and self._last == search:
                raise NothingLeft("the search found nothing")
            self._last = self._at_results(shown) if shown else search
        else:
            self._last = f"click[{PREVIOUS}]"
        return self._last

    def _follow(self, clicked: str) -> None:
        """What a click has changed. Another option than one of the goal's may have replaced one of the goal's."""
        if clicked in self._wish.options:
            self._chosen.add(clicked)
        elif clicked not in (*SUB_PAGES, PREVIOUS):
            self._open, self._chosen = clicked if _is_code(clicked) else self._open, set()

    def _at_results(self, shown: dict[str, list[float]]) -> str:
        """The first product not opened yet that fits the price, then the one that had most of the options."""
        fresh = [asin for asin in shown if asin not in self._has]
        fits = [asin for asin in fresh if shown[asin][0] <= self._wish.limit]
        near = [asin for asin in fits if shown[asin][-1] >= self._wish.limit - _NEAR]
        if fits and len(self._has) < LOOKS and (near or not self._has):
            return f"click[{(near or fits)[0]}]"
        opened = [asin for asin in shown if asin in self._has]
        return f"click[{max(opened, key=self._has.__getitem__) if opened else fresh[0]}]"

    def _at_product(self, admissible: tuple[str, ...]) -> str:
        offered = [value for value in self._wish.options if f"click[{value}]" in admissible]
        if self._open not in self._has:
            self._has[self._open] = len(offered)
            if len(offered) < len(self._wish.options):
                return f"click[{PREVIOUS}]"
        missing = [value for value in offered if value not in self._chosen]
        return f"click[{missing[0]}]" if missing else f"click[{BUY}]"


def read_goal(goal: str) -> Wish:
    """The parts of a goal's text."""
    limit = _LIMIT.search(goal)
    goal = _LIMIT.sub("", goal.removeprefix("Find me "))
    named = _OPTIONS.search(goal)
    options = [option.partition(": ")[2] for option in _NEXT_OPTION.split(named[1])] if named else []
    return Wish(_OPTIONS.sub("", goal), tuple(options), float(limit[1]) if limit else float("inf"))


def _shown(texts: list[str], admissible: tuple[str, ...]) -> dict[str, list[float]]:
    """The products of a results page → their prices. A product may have no title."""
    codes = [n for n, text in enumerate(texts) if f"click[{text.lower()}]" in admissible]
    tags = {n: texts[end - 1] for n, end in zip(codes, [*codes[1:], len(texts)])}
    return {texts[n].lower(): [float(price[1:]) for price in tag.split(" to ")] for n, tag in tags.items()}


def _is_code(text: str) -> bool:
    return re.fullmatch(r"[a-z0-9]{10}", text) is not None
