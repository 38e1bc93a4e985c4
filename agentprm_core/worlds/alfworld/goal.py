"""A problem's PDDL goal, grounded over one household into a small tree, and its evaluation.

A goal is a nested tuple: ``("and", …)``, ``("or", …)``, ``("not", x)``, or a fluent atom such as
``("inreceptacle", o, r)`` whose arguments are indices of the compiled game. Everything that no play can change
is decided while grounding, so what is left is what a step may flip.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from agentprm_core.worlds.alfworld.domain import ARITY
from agentprm_core.worlds.alfworld.pddl import Expression, PddlError, parse_typed

Formula = tuple
Goal = Formula | bool
"""A formula, or what it comes to whatever is played."""
Binding = dict[str, str]


class Grounder:
    """Grounds formulas over one problem.

    ``static`` holds the facts of every predicate that never changes. ``fluent`` gives the atom of a fact that may
    change, False where no play can make it true.
    """

    def __init__(
        self,
        objects: dict[str, str],
        static: dict[str, list[tuple[str, ...]]],
        fluent: Callable[[str, tuple[str, ...]], Goal],
    ) -> None:
        self._objects = objects
        self._static = static
        self._fluent = fluent

    def ground(self, formula: Expression, binding: Binding) -> Goal:
        """The tree of ``formula`` under ``binding``. Raises :class:`PddlError` naming a construct it does not know."""
        head, rest = _checked(formula)
        if head in self._static:
            return tuple([self._value(term, binding) for term in rest]) in self._static[head]
        if head == "and":
            return conjunction(self.ground(part, binding) for part in rest)
        if head == "or":
            return disjunction(self.ground(part, binding) for part in rest)
        if head == "not":
            return negation(self.ground(rest[0], binding))
        if head == "imply":
            return disjunction([negation(self.ground(rest[0], binding)), self.ground(rest[1], binding)])
        if head == "exists":
            return self._exists(rest[0], rest[1], binding)
        if head == "forall":
            return negation(self._exists(rest[0], ["not", rest[1]], binding))
        if head == "=":
            return self._value(rest[0], binding) == self._value(rest[1], binding)
        return self._fluent(head, tuple([self._value(term, binding) for term in rest]))

    def _value(self, term: Expression, binding: Binding) -> str:
        if not isinstance(term, str):
            raise PddlError(f"the goal uses {term} as a term")
        if not term.startswith("?"):
            return term
        if term not in binding:
            raise PddlError(f"the goal uses the variable {term} outside any quantifier")
        return binding[term]

    def _exists(self, declared: Expression, body: Expression, binding: Binding) -> Goal:
        """Directly nested quantifiers are joined, so that each conjunct is looked at as soon as it is bound."""
        variables = parse_typed(declared)
        while body[0] == "exists" and not variables.keys() & parse_typed(body[1]).keys():
            variables |= parse_typed(body[1])
            body = body[2]
        conjuncts = sorted(body[1:] if body[0] == "and" else [body], key=_is_nested)
        unbound = set(variables)
        levels = []
        for variable, kind in variables.items():
            unbound.discard(variable)
            levels.append((variable, kind, [part for part in conjuncts if not unbound & _words(part)]))
            conjuncts = [part for part in conjuncts if unbound & _words(part)]
        return self._join(levels, binding)

    def _join(self, levels: list[tuple[str, str, list[Expression]]], binding: Binding) -> Goal:
        if not levels:
            return True
        (variable, kind, ready), *inner = levels
        alternatives = []
        for value in self._candidates(variable, kind, ready, binding):
            bound = {**binding, variable: value}
            here = conjunction(self.ground(part, bound) for part in ready)
            if here is not False:
                alternatives.append(conjunction([here, self._join(inner, bound)]))
        return disjunction(alternatives)

    def _candidates(self, variable: str, kind: str, ready: list[Expression], binding: Binding) -> Iterable[str]:
        """Values to try: those of the variable's type that the first static conjunct over it allows."""
        for part in ready:
            predicate, terms = _checked(part)
            if predicate in self._static and variable in terms:
                place = terms.index(variable)
                wanted = [(i, self._value(term, binding)) for i, term in enumerate(terms) if term != variable]
                facts = [fact for fact in self._static[predicate] if all(fact[i] == value for i, value in wanted)]
                return dict.fromkeys(fact[place] for fact in facts if self._objects.get(fact[place]) == kind)
        return [name for name, its in self._objects.items() if its == kind]


def _checked(formula: Expression) -> tuple[str, list[Expression]]:
    """The head and the rest of a formula. Raises :class:`PddlError` where they do not fit."""
    if isinstance(formula, str) or not formula or not isinstance(formula[0], str):
        raise PddlError(f"the goal holds {formula} where a formula belongs")
    head, given = formula[0], len(formula) - 1
    if head not in _CONNECTIVES and head not in ARITY:
        raise PddlError(f"the goal reads {head}, which is not modelled")
    wanted = _CONNECTIVES[head] if head in _CONNECTIVES else ARITY[head]
    if wanted is not None and wanted != given:
        raise PddlError(f"the goal gives {head} {given} arguments: it takes {wanted}")
    return head, formula[1:]


_CONNECTIVES = {"and": None, "or": None, "not": 1, "imply": 2, "exists": 2, "forall": 2, "=": 2}
"""Logical symbol → number of its arguments, None for any."""


def _is_nested(formula: Expression) -> bool:
    return formula[0] not in ARITY


def _words(formula: Expression) -> set[str]:
    if isinstance(formula, str):
        return {formula}
    return set().union(*map(_words, formula))


def conjunction(parts: Iterable[Goal]) -> Goal:
    """``and`` of trees: decided parts drop out, nested ones are flattened; stops at the first False."""
    kept: list[Goal] = []
    for part in parts:
        if part is False:
            return False
        if part is not True:
            kept += part[1:] if part[0] == "and" else [part]
    if not kept:
        return True
    return kept[0] if len(kept) == 1 else ("and", *kept)


def disjunction(parts: Iterable[Goal]) -> Goal:
    """``or`` of trees, the dual of :func:`conjunction`."""
    kept: list[Goal] = []
    for part in parts:
        if part is True:
            return True
        if part is not False:
            kept += part[1:] if part[0] == "or" else [part]
    if not kept:
        return False
    return kept[0] if len(kept) == 1 else ("or", *kept)


def negation(part: Goal) -> Goal:
    return not part if isinstance(part, bool) else ("not", part)


def fluents(goal: Formula) -> set[str]:
    """The predicates a grounded goal reads."""
    if goal[0] in ("and", "or", "not"):
        return set().union(*map(fluents, goal[1:]))
    return {goal[0]}


def satisfied(goal: Formula, world) -> bool:
    """Whether ``goal`` holds in the state of ``world`` (a :class:`agentprm_core.worlds.alfworld.engine.FastWorld`)."""
    head = goal[0]
    if head == "and":
        return all(satisfied(part, world) for part in goal[1:])
    if head == "or":
        return any(satisfied(part, world) for part in goal[1:])
    if head == "not":
        return not satisfied(goal[1], world)
    return world.holds(*goal)
