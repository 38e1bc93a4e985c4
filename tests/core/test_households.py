"""Generated households: the same for the same seed, disjoint by split, and like the published ones."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentprm_core.errors import DataError
from agentprm_core.types import Game
from agentprm_core.worlds import make_world
from agentprm_core.worlds.alfworld.expert import play_expert
from agentprm_core.worlds.alfworld.games import load_games, write_game
from agentprm_core.worlds.alfworld.household_layout import (
    ROOMS,
    floor_plan,
    mangle,
    mangle_pose,
    mixed_floor_plan,
)
from agentprm_core.worlds.alfworld.households import (
    EXPERT_TURNS,
    SPLITS,
    floor_plans,
    generate_games,
    generate_mixed,
    generate_range,
)
from agentprm_core.worlds.alfworld.kinds import TASK_TYPES

PUBLISHED_PREDICATES = {
    *("atLocation", "canContain", "cleanable", "coolable", "heatable", "inReceptacle", "inReceptacleObject", "isCool"),
    *("isReceptacleObject", "objectAtLocation", "objectType", "openable", "pickupable", "receptacleAtLocation"),
    *("receptacleType", "sliceable", "toggleable"),
}
"""Those of the initial facts of the 3,694 games of train and valid_seen."""


@pytest.fixture(scope="module")
def games() -> list[Game]:
    return generate_games(60, 0, "train")


def _facts(game: Game) -> list[tuple[str, ...]]:
    start = game.payload.split("(:init")[1].split("(:goal")[0]
    return [(name, *arguments.split()) for name, arguments in re.findall(r"\((\w+) ([^()]*)\)", start)]


def _declared(game: Game) -> list[str]:
    return re.findall(r"^(\S+) - \w+$", game.payload.split("(:init")[0], re.MULTILINE)


@pytest.mark.parametrize("split", SPLITS)
def test_a_smaller_count_is_part_of_a_larger(split: str) -> None:
    few, more = generate_games(4, 3, split), generate_games(8, 3, split)
    assert set(few) < set(more)
    assert [game.id for game in more] == sorted({game.id for game in more})


def test_another_seed_gives_other_games() -> None:
    assert not set(generate_games(8, 3, "train")) & set(generate_games(8, 4, "train"))


def test_shares_of_several_processes_make_up_the_whole() -> None:
    shares = generate_range(range(0, 8, 2), 3, "train") + generate_range(range(1, 8, 2), 3, "train")
    assert sorted(shares, key=lambda game: game.id) == generate_games(8, 3, "train")


@pytest.mark.integration
def test_games_are_the_same_in_every_process() -> None:
    made = "generate_games(6, 1, 'seen'), generate_mixed(3, 1, [7, 8])"
    code = f"from agentprm_core.worlds.alfworld.households import *; print(repr(({made})))"
    elsewhere = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert elsewhere.stdout.strip() == repr((generate_games(6, 1, "seen"), generate_mixed(3, 1, [7, 8])))


def test_splits_have_the_floor_plans_they_should() -> None:
    for room, base in ROOMS.items():
        assert floor_plans("unseen", room) == list(range(base + 1, base + 7))
        assert floor_plans("train", room) == floor_plans("seen", room) == list(range(base + 7, base + 31))


def test_train_and_seen_are_disjoint_whatever_the_seeds() -> None:
    def belongs_to_seen(game: Game) -> bool:
        return int(game.id[-2:], 16) % 8 == 0

    assert not any(belongs_to_seen(game) for seed in range(3) for game in generate_games(12, seed, "train"))
    assert all(belongs_to_seen(game) for seed in range(3) for game in generate_games(4, seed, "seen"))


def test_all_task_types_come(games: list[Game]) -> None:
    assert {game.kind for game in games} == set(TASK_TYPES)


def test_only_published_predicates_are_used(games: list[Game]) -> None:
    assert {fact[0] for game in games for fact in _facts(game)} <= PUBLISHED_PREDICATES


def test_the_target_never_starts_where_it_is_to_be_brought(games: list[Game]) -> None:
    for game in games:
        if game.kind in ("pick_and_place_simple", "pick_two_obj_and_place"):
            _, target, _, parent, _ = game.id.split("/")[1].split("-")
            facts = set(_facts(game))
            homes = {fact[1] for fact in facts if fact[0] == "receptacleType" and fact[2] == f"{parent}Type"}
            targets = {fact[1] for fact in facts if fact[0] == "objectType" and fact[2] == f"{target}Type"}
            assert targets
            assert homes
            assert not [fact for fact in facts if fact[0] == "inReceptacle" and fact[1] in targets and fact[2] in homes]


def test_the_expert_solves_every_game(games: list[Game]) -> None:
    world = make_world("alfworld")
    assert all(play_expert(world, game, EXPERT_TURNS).won for game in games)


@settings(max_examples=25)
@given(index=st.integers(0, 10**6), seed=st.integers(0, 2**63), split=st.sampled_from(SPLITS))
def test_every_problem_is_well_formed(index: int, seed: int, split: str) -> None:
    (game,) = generate_range([index], seed, split)
    facts, declared = _facts(game), _declared(game)
    assert game.payload.count("(") == game.payload.count(")")
    assert len(declared) == len(set(declared))
    assert {name for _, *arguments in facts for name in arguments} <= set(declared)
    assert len(facts) == len(set(facts))
    assert game.split == split
    assert game.attributes["floor_plan"] in [number for room in ROOMS for number in floor_plans(split, room)]


KITCHENS = [7, 8, 9, 10]


@settings(max_examples=25)
@given(seed=st.integers(0, 2**63))
def test_a_mixed_floor_plan_takes_each_kind_from_one_plan(seed: int) -> None:
    plans = [floor_plan(number) for number in KITCHENS]
    mixed = mixed_floor_plan(random.Random(seed), plans)
    assert mixed.number in KITCHENS
    for kind in mixed.receptacle_kinds():
        ours = {r.id for r in mixed.receptacles if r.kind == kind}
        assert ours in [{r.id for r in plan.receptacles if r.kind == kind} for plan in plans]
    at = {(r.location, r.kind) for r in mixed.receptacles}
    assert len({location for location, _ in at} | set(mixed.starts)) == len(at) + 1
    assert mixed.kinds <= {kind for plan in plans for kind in plan.kinds}


def test_mixed_floor_plans_differ_from_the_plans_and_from_each_other() -> None:
    plans = [floor_plan(number) for number in KITCHENS]
    drawn = {frozenset(r.id for r in mixed_floor_plan(random.Random(n), plans).receptacles) for n in range(20)}
    assert len(drawn) == 20
    assert not drawn & {frozenset(r.id for r in plan.receptacles) for plan in plans}


def test_a_mixed_floor_plan_may_have_a_receptacle_of_another_room() -> None:
    plans, others = [floor_plan(number) for number in KITCHENS], [floor_plan(307)]
    kitchens = {kind for plan in plans for kind in plan.receptacle_kinds()}
    elsewhere = [
        set(mixed_floor_plan(random.Random(seed), plans, others).receptacle_kinds()) - kitchens for seed in range(40)
    ]
    assert all(len(kinds) <= 1 for kinds in elsewhere)
    assert 0 < sum(map(len, elsewhere)) < 20


def test_a_mixed_floor_plan_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^a mixed floor plan needs at least one to take from"):
        mixed_floor_plan(random.Random(1), [])


def test_mixed_games_are_of_train_and_solvable_and_name_a_plan_they_are_made_of() -> None:
    places = [*KITCHENS, 307, 308, 309]
    few, more = generate_mixed(4, 3, places), generate_mixed(12, 3, places)
    assert set(few) < set(more)
    assert {game.split for game in more} == {"train"}
    assert {game.attributes["source"] for game in more} == {"mixed"}
    assert {game.attributes["floor_plan"] for game in more} <= set(places)
    assert {fact[0] for game in more for fact in _facts(game)} <= PUBLISHED_PREDICATES
    world = make_world("alfworld")
    assert all(play_expert(world, game, EXPERT_TURNS).won for game in more)


def test_mixed_games_without_places_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^no mixed household without floor plans: \[\]"):
        generate_mixed(1, 1, [])


def test_an_unknown_split_is_named() -> None:
    with pytest.raises(DataError, match=r"^alfworld: split 'test' is not one of train, seen, unseen"):
        generate_games(1, 0, "test")


def test_a_generated_game_goes_to_disk_and_back(tmp_path: Path, games: list[Game]) -> None:
    for game in games[:3]:
        write_game(game, tmp_path)
    read = load_games(tmp_path, "train")
    assert [(g.id, g.goal, g.payload, g.attributes["floor_plan"]) for g in read] == [
        (g.id, g.goal, g.payload, g.attributes["floor_plan"]) for g in games[:3]
    ]


def test_names_are_spelt_as_published() -> None:
    assert mangle("Mug", (2.04, 0.894, -3.04)) == "Mug_bar__plus_02_dot_04_bar__plus_00_dot_89_bar__minus_03_dot_04"
    assert mangle_pose(0.0, -2.0, 270, -30) == "loc_bar_0_bar__minus_8_bar_3_bar__minus_30"


@pytest.mark.alfworld_data
def test_floor_plans_have_the_published_receptacles(alfworld_data: Path) -> None:
    """Those that open are the published ones, name by name; all together they are about as many."""
    ratios = []
    for number, game in {
        game.attributes["floor_plan"]: game for game in load_games(alfworld_data, "valid_seen")
    }.items():
        published = {fact[1] for fact in _facts(game) if fact[0] == "receptacleType"}
        ours = floor_plan(number).receptacles
        assert {r.id for r in ours if r.opens} <= published
        ratios.append(len(ours) / len(published))
    assert 0.9 < sum(ratios) / len(ratios) < 1.1
