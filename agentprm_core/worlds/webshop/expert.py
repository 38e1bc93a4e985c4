"""A shopper by rule: searches for the goal's words, opens what fits the price, looks whether the options and words of
the goal are there, goes back if not, chooses the options, buys. It reads the pages and nothing else."""

from __future__ import annotations

import re

from agentprm_core.worlds.base import NothingLeft, Observation
from agentprm_core.worlds.webshop.analysis import terms
from agentprm_core.worlds.webshop.pages import BUY, NEXT, PREVIOUS, SEP

LOOKS = 4
"""Products it opens before it takes the best of them."""
_LIMIT = re.compile(r", and price lower than ([\d.]+) dollars$")
_OPTIONS = re.compile(r" with ((?:(?! with )[a-z ])+: .*)$")
_NEXT_OPTION = re.compile(r", and (?=[a-z ]+: )")


class Shopper:
    """One episode. ``checks``: whether it reads a product's features before it buys."""

    def __init__(self, goal: str, checks: bool = True) -> None:
        self._query, self._words, self._options, self._limit = read_goal(goal)
        self._checks = checks
        self._fit: dict[str, float] = {}
        """Products that were looked at → how well they fit, in [0, 1]."""
        self._open = ""
        self._chosen: set[str] = set()
        self._last = ""

    def act(self, seen: Observation, done: str | None = None) -> str:
        """The next command. Raises NothingLeft where nothing was found that could be bought."""
        self._follow(done or self._last)
        self._last = self._next(seen)
        return self._last

    def _follow(self, done: str) -> None:
        told = done[6:-1] if done.startswith("click[") else ""
        if re.fullmatch(r"b0[a-z0-9]{8}|[0-9]{9}[0-9x]", told):
            self._open, self._chosen = told, set()
        elif told:
            self._chosen.add(told)
        else:
            self._chosen = set()

    def _next(self, seen: Observation) -> str:
        texts = seen.text.split(SEP)
        if texts[0] == "WebShop":
            return f"search[{self._query}]"
        if len(texts) > 3 and texts[3].startswith("Page "):
            return self._choose(texts, seen.admissible)
        if f"click[{BUY}]" in seen.admissible:
            return self._look(texts, seen.admissible)
        if self._open not in self._fit:
            self._judge(texts)
        return f"click[{PREVIOUS}]"

    def _choose(self, texts: list[str], admissible: tuple[str, ...]) -> str:
        """The first product of a results page that was not looked at and is not too dear; the best one, after enough
        looks."""
        rest = texts[texts.index("Next >") + 1 :]
        shown = list(zip(rest[::3], rest[2::3]))
        fresh = [
            asin.lower()
            for asin, price in shown
            if asin.lower() not in self._fit and float(price.split(" ")[0].strip("$")) <= self._limit
        ]
        if fresh and len(self._fit) < LOOKS:
            return f"click[{fresh[0]}]"
        seen = [asin.lower() for asin, _ in shown if asin.lower() in self._fit]
        if seen:
            return f"click[{max(seen, key=self._fit.__getitem__)}]"
        if not shown:
            raise NothingLeft("the search found nothing that can be paid")
        return f"click[{shown[0][0].lower()}]" if self._fit else f"click[{NEXT}]"

    def _look(self, texts: list[str], admissible: tuple[str, ...]) -> str:
        """On a product: choose what the goal names and buy, or go on looking."""
        clicks = [value for value in self._options if f"click[{value}]" in admissible]
        best = max(self._fit.values(), default=0.0)
        if self._open not in self._fit:
            if len(clicks) < len(self._options):
                self._fit[self._open] = len(clicks) / len(self._options) / 2
                return f"click[{PREVIOUS}]"
            if self._checks:
                self._title = texts
                return "click[features]"
            self._fit[self._open] = 1.0
        elif self._fit[self._open] < 1 and (self._fit[self._open] < best or len(self._fit) < LOOKS):
            return f"click[{PREVIOUS}]"
        missing = [value for value in clicks if value not in self._chosen]
        return f"click[{missing[0]}]" if missing else f"click[{BUY}]"

    def _judge(self, texts: list[str]) -> None:
        """How many of the goal's words the product's title and features have: all of them fit."""
        told = set(terms(" ".join([*self._title[4:], *texts[4:]])))
        share = len(self._words & told) / max(len(self._words), 1)
        self._fit[self._open] = 0.5 + share / 2


def read_goal(goal: str) -> tuple[str, set[str], list[str], float]:
    """(what to search for, the words that a product should have, the option values, the price limit) of a goal."""
    goal = goal.removeprefix("Find me ")
    limit = _LIMIT.search(goal)
    goal = _LIMIT.sub("", goal)
    options = _OPTIONS.search(goal)
    values = [named.partition(": ")[2] for named in _NEXT_OPTION.split(options[1])] if options else []
    wanted = set(terms(_OPTIONS.sub("", goal)))
    return goal, wanted, values, float(limit[1]) if limit else float("inf")
