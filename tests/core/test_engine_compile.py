"""From PDDL text to a compiled game: reading, numbering, grounded goals against the formula itself, the cache."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from agentprm_core.worlds import UnsupportedGame
from agentprm_core.worlds.alfworld import compiled_cache
from agentprm_core.worlds.alfworld.compile import compile_game, compiled_game
from agentprm_core.worlds.alfworld.engine import FastWorld
from agentprm_core.worlds.alfworld.names import entity_names, listing
from agentprm_core.worlds.alfworld.pddl import PddlError, parse_expression, parse_problem, parse_typed
from tests.core.engine_household import OBJECTS, RECEPTACLES, tiny_game, tiny_problem

PROBLEM = parse_problem(tiny_problem())


def test_expressions_are_lower_cased_and_lose_their_comments() -> None:
    assert parse_expression("(And (A ?X) ; all of it\n B)") == [["and", ["a", "?x"], "b"]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(define (problem x)", "1 brackets are never closed"),
        ("(define (problem x)))", "a bracket closes that was never opened"),
        ("(problem x)", r"not one \(define ...\) form"),
        ("(define (problem x) (:objects) (:goal (and)))", "has no :init section"),
        ("(define (:objects) (:init) (:goal (and)) (:constraints))", "a section :constraints, which is not known"),
        ("(define (:objects) (:init) (:goal (a) (b)))", "holds more or less than one formula"),
        ("(define (:objects a b) (:init) (:goal (a)))", "no type is given for a, b"),
        ("(define (:objects a - (either t u)) (:init) (:goal (a)))", "only names and simple types"),
        ("(define (:objects) (:init (= (fuel) 3)) (:goal (a)))", "where a fact belongs"),
    ],
)
def test_what_is_not_a_problem_is_refused(text: str, message: str) -> None:
    with pytest.raises(PddlError, match=message):
        parse_problem(text)


def test_costs_in_the_initial_state_are_skipped() -> None:
    problem = parse_problem(tiny_problem(more_facts="(= (total-cost) 0) (= (distance loc_bar_1 loc_bar_2) 7)"))
    assert problem.init == PROBLEM.init


def test_typed_lists() -> None:
    assert parse_typed(["a", "b", "-", "t", "c", "-", "u"]) == {"a": "t", "b": "t", "c": "u"}


def test_numbers_run_against_the_order_of_ids_and_count_all_that_is_mentioned() -> None:
    names = entity_names(["mug_bar_1", "mug_bar_3", "mug_bar_2", "sink_bar_1_bar_sinkbasin", "agent1", "mugtype"])
    assert names == {"mug_bar_1": "mug 3", "mug_bar_2": "mug 2", "mug_bar_3": "mug 1"} | {
        "sink_bar_1_bar_sinkbasin": "sinkbasin 1"
    }


def test_listing() -> None:
    assert listing([]) == "nothing"
    assert listing(["a mug 1"]) == "a mug 1"
    assert listing(["a", "b"]) == "a, and b"
    assert listing(["a", "b", "c"]) == "a, b, and c"


ATOMS = {
    **{
        "inreceptacle": ("object", "receptacle"),
        "objectatlocation": ("object", "location"),
        "holds": ("agent", "object"),
    },
    **{"atlocation": ("agent", "location"), "receptacleatlocation": ("receptacle", "location")},
    **dict.fromkeys(("isclean", "ishot", "iscool", "issliced", "istoggled", "heatable", "sliceable"), ("object",)),
    **{"opened": ("receptacle",), "openable": ("receptacle",), "holdsany": ("agent",)},
}
BY_TYPE = {
    kind: [name for name, its in PROBLEM.objects.items() if its == kind]
    for kind in ("object", "receptacle", "location", "agent")
}


@st.composite
def formulas(draw: st.DrawFn, scope: tuple[tuple[str, str], ...] = (), depth: int = 3) -> list:
    """A closed formula over the small household; ``scope`` are the variables bound outside, with their types."""
    kind = draw(st.sampled_from(("atom", "=", "not", "and", "or", "imply", "exists", "forall") if depth else ("atom",)))
    if kind == "atom":
        predicate = draw(st.sampled_from(sorted(ATOMS)))
        return [predicate, *(draw(_term(scope, of)) for of in ATOMS[predicate])]
    if kind == "=":
        of = draw(st.sampled_from(("object", "receptacle")))
        return ["=", draw(_term(scope, of)), draw(_term(scope, of))]
    inner = formulas(scope=scope, depth=depth - 1)
    if kind == "not":
        return ["not", draw(inner)]
    if kind == "imply":
        return ["imply", draw(inner), draw(inner)]
    if kind in ("and", "or"):
        return [kind, *draw(st.lists(inner, min_size=1, max_size=3))]
    of = draw(st.sampled_from(("object", "receptacle", "location")))
    name = f"?v{depth}"
    return [kind, [name, "-", of], draw(formulas(scope=(*scope, (name, of)), depth=depth - 1))]


def _term(scope: tuple[tuple[str, str], ...], kind: str) -> st.SearchStrategy[str]:
    bound = [name for name, of in scope if of == kind]
    return st.sampled_from(bound * 4 + BY_TYPE[kind])


def _holds(formula: list, facts: set[tuple[str, ...]], binding: dict[str, str]) -> bool:
    """The formula read word by word: the definition that grounding must agree with."""
    head, *rest = formula
    if head == "and":
        return all(_holds(part, facts, binding) for part in rest)
    if head == "or":
        return any(_holds(part, facts, binding) for part in rest)
    if head == "not":
        return not _holds(rest[0], facts, binding)
    if head == "imply":
        return not _holds(rest[0], facts, binding) or _holds(rest[1], facts, binding)
    if head in ("exists", "forall"):
        names = list(parse_typed(rest[0]).items())
        values = product(*([name for name, its in PROBLEM.objects.items() if its == kind] for _, kind in names))
        judge = any if head == "exists" else all
        return judge(_holds(rest[1], facts, binding | dict(zip(dict(names), value))) for value in values)
    terms = tuple(binding.get(term, term) for term in rest)
    return terms[0] == terms[1] if head == "=" else (head, *terms) in facts


def _facts(world: FastWorld) -> set[tuple[str, ...]]:
    """Every fact of the state, by PDDL id."""
    things = sorted(name.lower() for name in OBJECTS)
    places = sorted(name.lower() for name in RECEPTACLES)
    spots = sorted({place for _, place in RECEPTACLES.values()} | {"loc_bar_0_bar_0"})
    facts = {(predicate, *fact) for predicate in ("receptacleatlocation", "heatable", "sliceable", "openable")
             for fact in PROBLEM.init[predicate]}  # fmt: skip
    facts |= {("inreceptacle", things[o], places[r]) for r, inside in enumerate(world.contents) for o in inside}
    facts |= {("objectatlocation", things[o], spots[p]) for p, here in enumerate(world.present) for o in here}
    facts |= {("atlocation", "agent1", spots[world.location])}
    facts |= {("opened", name) for r, name in enumerate(places) if world.opened >> r & 1}
    if world.held is not None:
        facts |= {("holdsany", "agent1"), ("holds", "agent1", things[world.held])}
    for predicate in ("clean", "hot", "cool", "toggled", "sliced"):
        facts |= {(f"is{predicate}", name) for o, name in enumerate(things) if getattr(world, predicate) >> o & 1}
    return facts


@given(formula=formulas(), seed=st.integers(0, 10**6))
@settings(max_examples=150)
def test_a_grounded_goal_means_what_its_formula_says(formula: list, seed: int) -> None:
    world, rng = FastWorld(), random.Random(seed)
    try:
        shown = world.reset(tiny_game(_text(formula)))
    except UnsupportedGame as refusal:
        assume("goal" in str(refusal))
        shown = world.reset(tiny_game())
        expected = "the goal holds" in str(refusal)
        for _ in range(40):
            assert _holds(formula, _facts(world), {}) == expected
            world.step(rng.choice(world.step("look").admissible))
        return
    for _ in range(40):
        assert shown.done == _holds(formula, _facts(world), {})
        shown = world.step(rng.choice(shown.admissible))


def _text(formula: list | str) -> str:
    return formula if isinstance(formula, str) else f"({' '.join(map(_text, formula))})"


def test_the_cache_gives_back_what_was_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    games = [tiny_game(), replace(tiny_game(), id="train/a-b-None-c-1/2", goal="do it.")]
    fresh = compiled_cache.compile_games(games, tmp_path)
    assert fresh == [compile_game(game) for game in games]
    assert [compiled_game(game) for game in games] == fresh
    (file,) = tmp_path.iterdir()
    monkeypatch.setattr(compiled_cache, "compile_game", None)
    assert compiled_cache.compile_games(games, tmp_path) == fresh
    monkeypatch.undo()
    compiled_cache.compile_games([replace(games[0], goal="another."), games[1]], tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    assert file.exists()


def test_a_refused_game_leaves_no_cache(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedGame, match="flooded"):
        compiled_cache.compile_games(
            [tiny_game(), tiny_game(more_facts="(flooded Fridge_bar__plus_04_dot_00)")], tmp_path
        )
    assert list(tmp_path.iterdir()) == []
