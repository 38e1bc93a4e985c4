"""A problem's PDDL goal, grounded over one household into a small tree, and its evaluation.

A goal is a nested tuple: ``("and", …)``, ``("or", …)``, ``("not", x)``, or a fluent atom such as
``("inreceptacle", o, r)`` whose arguments are indices of the compiled game. Everything that no play can change
is decided while grounding, so what is left is what a step may flip.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agentprm_core.envs.alfworld.pddl import Expression, PddlError, parse_typed

Goal = tuple | bool
Binding = dict[str, str]


class Grounder:
    """Grounds formulas over one problem.

    ``static`` tells whether a fact that never changes holds, and raises KeyError for a predicate that is not static.
    ``fluent`` gives the atom of a fact that may change, False where no play can make it true.
    """

    def __init__(
        self,
        objects: dict[str, str],
        static: Callable[[str, tuple[str, ...]], bool],
        fluent: Callable[[str, tuple[str, ...]], Goal],
    ) -> None:
        self._static = static
        self._fluent = fluent
        self._of_type: dict[str, list[str]] = {}
        for name, kind in objects.items():
            self._of_type.setdefault(kind, []).append(name)

    def ground(self, formula: Expression, binding: Binding) -> Goal:
        """The tree of ``formula`` under ``binding``. Raises :class:`PddlError` naming a construct it does not know."""
        head, *rest = formula
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
        return self._atom(head, tuple(self._value(term, binding) for term in rest))

    def _value(self, term: Expression, binding: Binding) -> str:
        if not isinstance(term, str):
            raise PddlError(f"the goal uses {term} as a term")
        if not term.startswith("?"):
            return term
        if term not in binding:
            raise PddlError(f"the goal uses the variable {term} outside any quantifier")
        return binding[term]

    def _atom(self, predicate: Expression, arguments: tuple[str, ...]) -> Goal:
        if not isinstance(predicate, str):
            raise PddlError(f"the goal holds {predicate} where a predicate belongs")
        try:
            return self._static(predicate, arguments)
        except KeyError:
            return self._fluent(predicate, arguments)

    def _exists(self, declared: list[Expression], body: Expression, binding: Binding) -> Goal:
        """Directly nested quantifiers are joined, so that each conjunct is looked at as soon as it is bound."""
        variables = list(parse_typed(declared).items())
        while body[0] == "exists" and not {name for name, _ in variables} & set(parse_typed(body[1])):
            variables += parse_typed(body[1]).items()
            body = body[2]
        conjuncts = body[1:] if body[0] == "and" else [body]
        return self._join(variables, sorted(conjuncts, key=_is_nested), binding)

    def _join(self, variables: Sequence[tuple[str, str]], conjuncts: list[Expression], binding: Binding) -> Goal:
        if not variables:
            return conjunction(self.ground(part, binding) for part in conjuncts)
        (variable, kind), *inner = variables
        unbound = {name for name, _ in inner}
        ready = [part for part in conjuncts if not unbound & _words(part)]
        later = [part for part in conjuncts if unbound & _words(part)]
        alternatives = []
        for value in self._of_type.get(kind, ()):
            bound = {**binding, variable: value}
            here = conjunction(self.ground(part, bound) for part in ready)
            if here is not False:
                alternatives.append(conjunction([here, self._join(inner, later, bound)]))
        return disjunction(alternatives)


def _is_nested(formula: Expression) -> bool:
    return formula[0] in ("and", "or", "not", "imply", "exists", "forall")


def _words(formula: Expression) -> set[str]:
    if isinstance(formula, str):
        return {formula}
    return set().union(*map(_words, formula))


def conjunction(parts) -> Goal:
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


def disjunction(parts) -> Goal:
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


def fluents(goal: Goal) -> set[str]:
    """The predicates a grounded goal reads."""
    if goal[0] in ("and", "or", "not"):
        return set().union(*map(fluents, goal[1:]))
    return {goal[0]}


def satisfied(goal: Goal, world) -> bool:
    """Whether ``goal`` holds in the state of ``world`` (a :class:`agentprm_core.envs.alfworld.engine.FastWorld`)."""
    head = goal[0]
    if head == "and":
        return all(satisfied(part, world) for part in goal[1:])
    if head == "or":
        return any(satisfied(part, world) for part in goal[1:])
    if head == "not":
        return not satisfied(goal[1], world)
    return world.holds(*goal)
