"""BabyAI's expert that reads: what it understands of the text, and what it does."""

from __future__ import annotations

import pytest

from agentprm_core.policy.tokenizer import train_tokenizer
from agentprm_core.types import Game
from agentprm_core.worlds import make_world, world_spec
from agentprm_core.worlds.base import NothingLeft, Observation
from agentprm_core.worlds.demonstrations import demonstrate

pytest.importorskip("minigrid", reason="BabyAI's engine is not installed: pip install minigrid==3.2.0 gymnasium==1.4.0")

from agentprm_core.worlds.babyai.expert import Expert
from agentprm_core.worlds.babyai.levels import make_level
from agentprm_core.worlds.babyai.reader import Reader
from agentprm_core.worlds.babyai.told import Clause, Thing, Wanted, carried_in, clauses_of, goal_in, things_of
from agentprm_core.worlds.babyai.world import BabyAI, payload

SPEC = world_spec("babyai")


def game(level: int, seed: int) -> Game:
    return Game(f"babyai-{level}-{seed}", "babyai", "test", "goto", "", payload(level, seed))


def demonstrated(level: int, seed: int, corrupt: float = 0.0, turns: int = 20):
    how = {"world_name": "babyai", "max_turns": turns, "seed": 1, "knowledge": 0.0, "corrupt": corrupt}
    return demonstrate(make_world("babyai"), game(level, seed), **how)


def test_things_are_read_as_the_text_places_them():
    text = (
        "In front of you in this room, you can see several objects: There is a red closed door 1 right in front of you "
        "1 steps away.  There is a grey ball 2 0 steps in front of you and 3 steps to your left.  The room has walls "
        "around you. You are carrying a blue key."
    )
    assert things_of(text) == [
        Thing("red closed door", "red", "closed", "door", 1, 1, 0),
        Thing("grey ball", "grey", "", "ball", 2, 0, -3),
    ]
    assert things_of(text)[0].faced and things_of(text)[0].apart(things_of(text)[1]) == 4
    assert carried_in(text) == "blue key" and carried_in("You are not carrying anything.") == ""
    assert goal_in(text) == []


def test_a_clause_says_what_is_wanted_and_where():
    assert clauses_of("put a red ball next to the door on your left") == [
        Clause("put", Wanted("red", "ball", ""), Wanted("", "door", "on your left"))
    ]
    assert Wanted("", "object", "").names("red key") and not Wanted("", "object", "").fits(
        Thing("red open door", "red", "open", "door", 1, 1, 0)
    )


@pytest.mark.parametrize("level", [8, 15, 16, 34, 37, 38, 39])
def test_the_order_of_the_clauses_is_one_that_minigrid_asks_for(level):
    for seed in range(60):
        made = make_level(level, seed)
        order = clauses_of(made.goal)
        first, then, second = made.mission_text.partition(", then ")
        if not then:
            second, after, first = made.mission_text.partition(" after you ")
            if not after:
                continue
        before = [clause for text in first.split(" and ") for clause in clauses_of(text)]
        assert sorted(order[: len(before)], key=repr) == sorted(before, key=repr), made.mission_text
        assert len(order) == len(before) + len(second.split(" and "))


def test_the_comma_that_tells_the_order_has_a_token():
    goal = "Your goal: open the blue door, and pick up a red ball and go to the key on your left"
    seen = "You are carrying a red ball. There is a red ball 2 right in front of you 3 steps away. "
    tokenizer = train_tokenizer([goal, seen], 64, SPEC.phrases, SPEC.entity, SPEC.rewritten)
    assert tokenizer.tokenize(goal) == [
        *("your goal:", "open", "blue door", "then", "pick up", "red ball", "go to", "key", "on your left")
    ]
    assert tokenizer.tokenize(seen)[:2] == ["you are carrying", "red ball"]
    assert "then" not in tokenizer.tokenize("you see a red ball 1, and a red ball 2")


@pytest.mark.parametrize("level", [1, 8, 15, 16, 22, 25, 27, 28])
def test_the_reader_wins_easy_levels_and_goes_on_after_mistakes(level):
    assert sum(demonstrated(level, 1_000 + seed).won for seed in range(10)) >= 8
    assert sum(demonstrated(level, 1_000 + seed, corrupt=0.2, turns=40).won for seed in range(10)) >= 2


def test_the_reader_does_the_same_again():
    assert demonstrated(37, 1_003) == demonstrated(37, 1_003)


def test_the_reader_does_what_is_admissible():
    for level in (6, 18, 24, 29, 33, 34, 39):
        for seed in range(1_000, 1_005):
            assert all(turn.valid for turn in demonstrated(level, seed).turns), (level, seed)


def test_without_a_goal_nothing_is_left():
    world = BabyAI()
    seen = world.reset(game(1, 1_000))
    with pytest.raises(NothingLeft):
        Reader(world).act(Observation(seen.text.partition("\n\n")[0], seen.admissible))


def test_a_key_that_no_action_picks_up_is_left():
    world = BabyAI()
    world.reset(game(1, 1_000))
    seen = (
        "In front of you in this room, you can see several objects: There is a red key 1 1 steps in front of you and "
        "1 steps to your left.  There is a red locked door 1 right in front of you 4 steps away.  The room has walls "
        "around you. You are not carrying anything.\n\nYour goal: go to the blue ball"
    )
    assert Reader(world).act(Observation(seen, ("turn left", "turn right"))) == "turn right"


def test_the_reader_demonstrates_and_the_bot_where_it_is_asked_for():
    world = BabyAI()
    world.reset(game(1, 1_000))
    assert isinstance(SPEC.demonstrator()(world, game(1, 1_000), 1, 0.0), Reader)
    assert isinstance(SPEC.demonstrator("bot")(world, game(1, 1_000), 1, 0.0), Expert)
