"""The fast engine beside TextWorld: every observation, every command list, ``won``, facts and keys."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from agentprm_core.worlds import make_world
from agentprm_core.worlds.alfworld.engine import FastWorld
from agentprm_core.worlds.alfworld.games import load_games
from agentprm_core.worlds.alfworld.households import generate_games
from benchmarks.engine_parity import random_command, side_by_side
from tests.core.engine_household import tiny_game

FACTS = ("inreceptacle", "holds", "holdsany", "opened", "isclean", "ishot", "iscool", "istoggled", "issliced")
UNREAD = ("checked", "ison", "not_", "new-axiom")
NEIGHBOURS = ("cabinet 1", "cabinet 2")

GOALS = {
    "two": """(exists (?r - receptacle) (exists (?o1 - object) (and (objectType ?o1 AppleType)
        (receptacleType ?r CounterTopType) (inReceptacle ?o1 ?r) (exists (?o2 - object) (and (not (= ?o1 ?o2))
        (objectType ?o2 AppleType) (receptacleType ?r CounterTopType) (inReceptacle ?o2 ?r))))))""",
    "light": """(and (exists (?ot - object ?r - receptacle ?a - agent ?l - location) (and
        (objectType ?ot DeskLampType) (toggleable ?ot) (isToggled ?ot) (receptacleAtLocation ?r ?l)
        (atLocation ?a ?l) (inReceptacle ?ot ?r))) (exists (?o - object ?a - agent)
        (and (objectType ?o KeyChainType) (holds ?a ?o))))""",
    "hot slice": """(exists (?r - receptacle) (exists (?o - object) (and (sliceable ?o) (isSliced ?o) (heatable ?o)
        (objectType ?o AppleType) (receptacleType ?r CounterTopType) (isHot ?o) (inReceptacle ?o ?r))))""",
    "cool": """(exists (?r - receptacle) (exists (?o - object) (and (coolable ?o) (objectType ?o AppleType)
        (receptacleType ?r CabinetType) (isCool ?o) (inReceptacle ?o ?r))))""",
    "movable": """(exists (?r - receptacle) (and (receptacleType ?r SinkBasinType) (exists (?o - object) (and
        (objectType ?o SpoonType) (exists (?mo - object) (and (objectType ?mo MugType) (isReceptacleObject ?mo)
        (inReceptacleObject ?o ?mo) (inReceptacle ?mo ?r)))))))""",
    "connectives": """(and (or (opened Fridge_bar__plus_04_dot_00) (isClean Plate_bar__plus_01_dot_04))
        (not (holdsAny agent1)) (forall (?o - object)
        (imply (objectType ?o KnifeType) (not (inReceptacle ?o CounterTop_bar__plus_01_dot_00)))))""",
    "place": """(exists (?l - location) (and (objectAtLocation Plate_bar__plus_01_dot_04 ?l) (atLocation agent1 ?l)
        (receptacleAtLocation Microwave_bar__plus_03_dot_00 ?l) (opened Microwave_bar__plus_03_dot_00)))""",
}


@pytest.fixture(scope="module")
def engines() -> tuple:
    return make_world("alfworld"), make_world("alfworld-textworld")


def _facts(reference) -> set[str]:
    """All of the reference's facts, the negative ones that :meth:`TextWorld.facts` leaves out among them."""
    named = [reference._env._get_human_readable_fact(fact) for fact in reference._state["_facts"]]
    return {" ".join([fact.name, *(name.strip() for name in fact.names)]) for fact in named}


def _state(facts: set[str]) -> frozenset[str]:
    """The facts that something reads: all but bookkeeping and negations, but for those of neighbouring receptacles."""
    stray = {fact for fact in facts if fact.startswith("not_inreceptacle ") and fact.endswith(NEIGHBOURS)}
    return frozenset({fact for fact in facts if not fact.startswith(UNREAD)} | stray)


def test_facts_and_keys_follow_the_reference(engines: tuple) -> None:
    fast, reference = engines
    rng, game = random.Random(1), tiny_game()
    ours, _ = fast.reset(game), reference.reset(game)
    key_of: dict[frozenset[str], str] = {}
    for _ in range(120):
        facts = _facts(reference)
        assert set(fast.facts()) == {fact for fact in facts if fact.split()[0] in FACTS}
        assert key_of.setdefault(_state(facts), fast.state_key()) == fast.state_key()
        command = random_command(rng, ours, list(ours.admissible))
        ours, theirs = fast.step(command), reference.step(command)
        assert ours == theirs
    assert len(set(key_of.values())) == len(key_of) > 40


@pytest.mark.parametrize("goal", GOALS)
def test_goals_are_judged_as_the_reference_judges_them(engines: tuple, goal: str) -> None:
    fast, reference = engines
    counts, mismatch = side_by_side(tiny_game(GOALS[goal]), fast, reference, 25, random.Random(goal), expert=False)
    assert mismatch is None
    assert counts["steps"] == 25


def test_generated_households_play_alike(engines: tuple) -> None:
    for game in generate_games(2, 11, "unseen"):
        assert side_by_side(game, *engines, 20, random.Random(game.id))[1] is None


@pytest.mark.alfworld_data
def test_published_games_play_alike(engines: tuple, alfworld_data: Path) -> None:
    for game in load_games(alfworld_data, "valid_seen")[::70]:
        assert side_by_side(game, *engines, 20, random.Random(game.id))[1] is None


@pytest.mark.slow
@pytest.mark.alfworld_data
def test_more_published_games_play_alike(engines: tuple, alfworld_data: Path) -> None:
    for game in load_games(alfworld_data, "valid_seen")[::9]:
        assert side_by_side(game, *engines, 40, random.Random(game.id))[1] is None


def test_a_walk_reports_the_first_mismatch(engines: tuple) -> None:
    class Boaster(FastWorld):
        __slots__ = ()

        def step(self, command: str):
            shown = super().step(command)
            return (
                shown
                if len(shown.admissible) < 12
                else type(shown)("Surprise.", shown.admissible, shown.reward, shown.done)
            )

    counts, mismatch = side_by_side(tiny_game(), Boaster(), engines[1], 40, random.Random(0), expert=False)
    assert counts["mismatches"] == 1
    assert mismatch.fast["text"] == "Surprise."
    assert mismatch.commands
