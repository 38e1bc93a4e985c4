"""Published games with generated ones: no place of ``unseen`` is in train, and no place is made up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agentprm_core.errors import DataError
from agentprm_core.types import Game
from agentprm_core.worlds import world_spec
from agentprm_core.worlds.alfworld.household_layout import ROOMS
from agentprm_core.worlds.alfworld.households import floor_plans
from agentprm_core.worlds.base import WorldSpec
from agentprm_core.worlds.held_out_places import games_by_place, generated_games, guard_games

ALFWORLD = world_spec("alfworld")


def game(split: str, plan: int, number: int, source: str = "published") -> Game:
    attributes: dict = {"floor_plan": plan, "source": source}
    return Game(f"{split}/{source}-{plan}/{number}", "alfworld", split, "kind", "put it there.", "payload", attributes)


def spec() -> WorldSpec:
    """Floor plans 1 (kept for ``unseen``), 7 and 8 are published; the generator also knows 9, which is not."""
    published = {"train": [1, 1, 7, 7, 7, 8, 8], "valid_seen": [1, 7, 8]}

    def load(root: Path, split: str, limit: int | None) -> list[Game]:
        return [game(split, plan, number) for number, plan in enumerate(published[split])]

    def generate(count: int, seed: int, split: str) -> list[Game]:
        return [game(split, (7, 9, 8)[number % 3], number, "generated") for number in range(count)]

    return replace(ALFWORLD, load=load, generate=generate)


def test_places_kept_for_unseen_are_in_no_game_of_training():
    found = games_by_place(spec(), Path(), {"train": 25, "seen": 2, "unseen": 2}, generated=20, seed=1)
    plans = {split: {g.attributes["floor_plan"] for g in games} for split, games in found.items()}
    assert plans == {"train": {7, 8}, "seen": {7, 8}, "unseen": {1}}
    assert {split: len(games) for split, games in found.items()} == {"train": 25, "seen": 2, "unseen": 2}
    assert sum(g.attributes["source"] == "generated" for g in found["train"]) == 20
    assert {g.split for g in found["unseen"]} == {"unseen"}
    assert all(games == sorted(games, key=lambda g: g.id) for games in found.values())


def test_mixed_games_are_made_of_the_places_of_training():
    made_of = []

    def generate_mixed(count: int, seed: int, places) -> list[Game]:
        made_of.append(set(places))
        return [game("train", 7, number, "mixed") for number in range(count)]

    mixing = replace(spec(), generate_mixed=generate_mixed)
    found = games_by_place(mixing, Path(), {"train": 25, "seen": 0, "unseen": 0}, generated=10, seed=1, mixed=11)
    sources = [g.attributes["source"] for g in found["train"]]
    assert {source: sources.count(source) for source in sources} == {"generated": 10, "mixed": 11, "published": 4}
    assert made_of == [{7, 8}]


def test_a_world_whose_places_cannot_be_mixed():
    with pytest.raises(DataError, match=r"^games.published.mixed: the places of alfworld cannot be mixed"):
        games_by_place(
            replace(spec(), generate_mixed=None), Path(), {"train": 1, "seen": 0, "unseen": 0}, 0, 1, mixed=1
        )


def test_a_share_of_the_generated_training_games_is_mixed():
    def generate_mixed(count: int, seed: int, places) -> list[Game]:
        assert places == {7, 8, 9}
        return [game("train", 7, number, f"mixed by {seed}") for number in range(count)]

    mixing = replace(spec(), generate_mixed=generate_mixed, mixed=0.25)
    found = generated_games(mixing, 40, 3, "train")
    assert found == sorted(found, key=lambda g: g.id)
    assert [g.attributes["source"] for g in found].count("mixed by 3") == 10
    assert len(found) == 40
    assert generated_games(mixing, 40, 3, "unseen") == spec().generate(40, 3, "unseen")
    assert generated_games(spec(), 40, 3, "train") == spec().generate(40, 3, "train")


def test_half_of_the_training_games_of_the_default_are_in_mixed_rooms():
    games = generated_games(world_spec("alfworld-training"), 30, 1, "train")
    sources = [g.attributes["source"] for g in games]
    assert {source: sources.count(source) for source in sources} == {"generated": 15, "mixed": 15}
    assert len({g.id for g in games}) == 30
    assert not {g.attributes["floor_plan"] for g in games} & ALFWORLD.new_places


def test_the_seed_draws_which():
    counts = {"train": 13, "seen": 1, "unseen": 1}
    drawn = {tuple(g.id for g in games_by_place(spec(), Path(), counts, 10, s)["train"]) for s in range(8)}
    assert len(drawn) > 1
    assert games_by_place(spec(), Path(), counts, 10, 3) == games_by_place(spec(), Path(), counts, 10, 3)


@pytest.mark.parametrize(
    ("counts", "generated", "says"),
    [
        ({"train": 6, "seen": 0, "unseen": 0}, 0, "games.train: 6 published games asked for, there are 5 in places of"),
        ({"train": 0, "seen": 0, "unseen": 3}, 0, "games.unseen: 3 published games asked for, there are 2"),
        ({"train": 5, "seen": 0, "unseen": 0}, 6, "games.train: 1 fewer than games.published.generated and mixed"),
    ],
)
def test_more_games_than_there_are(counts, generated, says):
    with pytest.raises(DataError, match=says):
        games_by_place(spec(), Path(), counts, generated, seed=1)


def test_a_world_without_places():
    with pytest.raises(DataError, match=r"^games.published: textcraft has no published games by place"):
        games_by_place(world_spec("textcraft"), Path(), {"train": 1, "seen": 0, "unseen": 0}, 0, 1)


def test_the_spec_names_the_places_that_the_generator_keeps_for_unseen():
    assert ALFWORLD.new_places == {number for room in ROOMS for number in floor_plans("unseen", room)}


@pytest.mark.parametrize("world", ["alfworld-training", "textcraft", "webshop", "babyai", "arithmetic", "all_worlds"])
def test_guard_games_are_other_games_in_places_of_no_training_game(world):
    made, wanted = world_spec(world), {"train": 60, "seen": 10, "unseen": 20}
    campaign = [game for split, count in wanted.items() for game in generated_games(made, count, 1, split)]
    guard = guard_games(made, 20, 1, campaign)
    assert 10 <= len(guard) <= 20 and guard == guard_games(made, 20, 1, campaign)
    assert {game.id for game in guard}.isdisjoint(game.id for game in campaign)
    assert {game.payload for game in guard}.isdisjoint(game.payload for game in campaign)
    if made.place:
        assert {game.attributes[made.place] for game in guard} <= made.new_places


def test_there_are_no_guard_games_where_the_generator_makes_no_others():
    asked = []

    def generate(count: int, seed: int, split: str) -> list[Game]:
        asked.append(count)
        return [game(split, 1, number, "generated") for number in range(3)]

    same = replace(ALFWORLD, generate=generate)
    assert guard_games(same, 7, 1, generate(3, 1, "unseen")) == []
    assert asked[-1] == 7
    in_a_place_of_training = replace(game("train", 1, 9), payload="another")
    others = [replace(one, payload=f"payload {n}") for n, one in enumerate(generate(3, 1, "unseen"))]
    apart = replace(ALFWORLD, generate=lambda *_: others)
    assert guard_games(apart, 7, 1, [in_a_place_of_training]) == []
    assert guard_games(apart, 7, 1, [game("train", 7, 9)]) == others
    assert guard_games(apart, 0, 1, []) == []
