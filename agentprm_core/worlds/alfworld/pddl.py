"""The PDDL problem of a ``game.tw-pddl``, read into plain data. Knows the syntax, nothing of households.

Names are lower-cased, as Fast Downward's reader does: ALFWorld's own text is built from lower-case ids.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeGuard

Expression = str | list["Expression"]
"""An s-expression: a word, or a list of s-expressions."""

SECTIONS = {"problem", ":domain", ":objects", ":init", ":goal", ":metric"}


class PddlError(ValueError):
    """The text is not a PDDL problem. Says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem: typed objects, the facts that hold at the start, the goal."""

    objects: dict[str, str]
    """Object id → type, in the problem's order."""
    init: dict[str, list[tuple[str, ...]]]
    """Predicate → argument tuples, each once, in the problem's order."""
    goal: Expression


def parse_expression(text: str) -> list[Expression]:
    """The s-expressions of ``text``, lower-cased, without comments. Raises :class:`PddlError` on open brackets."""
    if ";" in text:
        text = re.sub(r";[^\n]*", "", text)
    open_lists: list[list[Expression]] = []
    current: list[Expression] = []
    for token in text.lower().replace("(", " ( ").replace(")", " ) ").split():
        if token == "(":
            open_lists.append(current)
            current = []
        elif token == ")":
            if not open_lists:
                raise PddlError("a bracket closes that was never opened")
            closed = current
            current = open_lists.pop()
            current.append(closed)
        else:
            current.append(token)
    if open_lists:
        raise PddlError(f"{len(open_lists)} brackets are never closed: the text is cut short")
    return current


def parse_typed(words: Expression) -> dict[str, str]:
    """``a b - t c - u`` as ``{a: t, b: t, c: u}``. Raises :class:`PddlError` where a type is missing."""
    typed: dict[str, str] = {}
    waiting: list[str] = []
    expect_type = False
    for word in words:
        if not isinstance(word, str):
            raise PddlError(f"a typed list holds {word!r}: only names and simple types are known")
        if word == "-":
            expect_type = True
        elif expect_type:
            typed.update(dict.fromkeys(waiting, word))
            waiting = []
            expect_type = False
        else:
            waiting.append(word)
    if waiting or expect_type:
        raise PddlError(f"no type is given for {', '.join(waiting) or 'the end of a typed list'}")
    return typed


def parse_problem(text: str) -> Problem:
    """Read a problem. Raises :class:`PddlError` naming the section that is missing, unknown or malformed."""
    tops = parse_expression(text)
    if len(tops) != 1 or tops[0][:1] != ["define"]:
        raise PddlError("the problem is not one (define ...) form")
    sections: dict[str, list[Expression]] = {}
    for section in tops[0][1:]:
        if isinstance(section, str) or not section or not isinstance(section[0], str):
            raise PddlError(f"the problem holds {section} where a section belongs")
        sections[section[0]] = section[1:]
    for name in (":objects", ":init", ":goal"):
        if name not in sections:
            raise PddlError(f"the problem has no {name} section")
    for name in sections.keys() - SECTIONS:
        raise PddlError(f"the problem has a section {name}, which is not known")
    if len(sections[":goal"]) != 1:
        raise PddlError("the :goal section holds more or less than one formula")
    return Problem(parse_typed(sections[":objects"]), _parse_facts(sections[":init"]), sections[":goal"][0])


def _parse_facts(facts: list[Expression]) -> dict[str, list[tuple[str, ...]]]:
    """Facts by predicate. Costs (``(= (total-cost) 0)``, distances) are dropped: no text and no goal reads them."""
    by_predicate: dict[str, dict[tuple[str, ...], None]] = {}
    for fact in facts:
        if fact[:1] == ["="] and fact[1][0] in ("total-cost", "distance"):
            continue
        if not _is_fact(fact):
            raise PddlError(f"the :init section holds {fact} where a fact belongs")
        by_predicate.setdefault(fact[0], {})[tuple(fact[1:])] = None
    return {predicate: list(arguments) for predicate, arguments in by_predicate.items()}


def _is_fact(expression: Expression) -> TypeGuard[list[str]]:
    return isinstance(expression, list) and len(expression) > 0 and list not in map(type, expression)
