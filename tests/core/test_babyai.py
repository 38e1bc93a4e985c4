"""BabyAI says what AgentGym says, does what minigrid does, and keeps the world's contract."""

from __future__ import annotations

import json
import lzma
import os
import random
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from agentprm_core.errors import DataError
from agentprm_core.policy.tokenizer import train_tokenizer
from agentprm_core.types import Game
from agentprm_core.worlds import UnsupportedGame, make_world, world_spec
from agentprm_core.worlds.demonstrations import demonstrate

pytest.importorskip("minigrid", reason="BabyAI's engine is not installed: pip install minigrid==3.2.0 gymnasium==1.4.0")

from agentprm_core.worlds.babyai import games, levels
from agentprm_core.worlds.babyai.dialogues import check
from agentprm_core.worlds.babyai.games import UNSEEN, generate_games, published_item
from agentprm_core.worlds.babyai.kinds import CLOSED, EMPTY, OF_TRIPLE, OPEN, WALL, door
from agentprm_core.worlds.babyai.scene import describe
from agentprm_core.worlds.babyai.world import BabyAI, payload
from benchmarks.expert import measure

DIALOGUES = Path(
    os.environ.get(
        "BABYAI_DIALOGUES",
        Path(__file__).resolve().parents[3] / "shared" / "data" / "later" / "babyai_dialogues.jsonl.xz",
    )
)


def game(level: int, seed: int) -> Game:
    return Game(f"babyai-{level}-{seed}", "babyai", "test", "goto", "", payload(level, seed))


def play(level: int, seed: int, *commands: str) -> BabyAI:
    world = BabyAI()
    world.reset(game(level, seed))
    for command in commands:
        world.step(command)
    return world


@pytest.fixture(scope="module")
def records() -> list[dict]:
    if not DIALOGUES.exists():
        pytest.skip(f"no recorded dialogues: BABYAI_DIALOGUES is not set and {DIALOGUES} is not there")
    with lzma.open(DIALOGUES, "rt") as lines:
        return [json.loads(line) for line in lines]


def test_every_recorded_reply_is_ours(records):
    report = check(records)
    assert (report.dialogues, report.mismatches, report.first) == (len(records), 0, None)


def test_a_reply_that_differs_is_reported_in_full(records):
    record = records[0]
    wrong = {**record, "steps": [{**record["steps"][0], "observation": "Nothing happens."}]}
    report = check([record, wrong])
    assert report.mismatches == 1
    assert (report.first["id"], report.first["step"]) == (record["id"], 1)
    assert report.first["expected"]["observation"] == "Nothing happens."
    assert report.first["found"]["observation"] == record["steps"][0]["observation"]


def test_a_record_of_another_world_is_refused():
    with pytest.raises(DataError, match=r"record 1 \(t-1\) is damaged, or not of this world: no 'level' in it"):
        check([{"id": "t-1", "start": 3}])


def test_a_record_of_a_level_that_there_is_not_is_told_by_its_number():
    start = dict.fromkeys(("observation", "reward", "done", "mission", "goal", "max_steps", "env_id"))
    said = r"^record 1 \(t-1\) is damaged, .*: BabyAI has the levels 1 to 40, not 41; give the whole file of this world"
    with pytest.raises(DataError, match=said):
        check([{"id": "t-1", "level": 41, "seed": 0, "steps": [], **start}])


@pytest.mark.parametrize("level", range(1, 41))
def test_low_level_actions_do_what_minigrid_does(level):
    """Random text actions on ours, the low-level actions that they came to on minigrid's own environment."""
    choose = random.Random(level)
    for seed in (0, 2_000 + level):
        environment, _ = levels.make_environment(level, seed)
        world = play(level, seed)
        for _ in range(25):
            command, before = choose.choice([*world.scene.actions, "drop"]), world.maze.steps
            low_level = world.scene.actions.get(command, b"")
            world.step(command)
            for action in low_level[: world.maze.steps - before]:
                seen, reward, *_ = environment.step(action)
            if world.maze.steps > before:
                image = [OF_TRIPLE[tuple(seen["image"][i, j].tolist())] for j in range(7) for i in range(7)]
                assert int.from_bytes(image) == world.maze.image(), command
                assert (reward, seen["direction"]) == (world.reward, world.maze.heading), command


def test_a_room_too_full_for_the_agent_is_drawn_anew_and_not_for_ever():
    """minigrid draws places in it without end."""
    number = levels.LEVELS.index("SynthS5R2") + 1
    assert levels.build_level(number, 234951) == levels.build_level(number, 234951)


def test_reset_tells_the_scene_and_the_goal():
    seen = BabyAI().reset(game(3, 0))
    scene, goal = seen.text.split("\n\n")
    assert scene.startswith("In front of you in this room, you can see several objects: ")
    assert goal == "Your goal: go to the red ball"
    assert list(seen.admissible) == sorted(set(seen.admissible))
    assert {"turn left", "turn right", "check available actions"} < set(seen.admissible)
    assert (seen.reward, seen.done) == (0.0, False)


def test_the_goal_hides_the_order_of_what_is_to_be_done():
    texts = [(level.mission_text, level.goal) for level in (levels.make_level(8, seed) for seed in range(20))]
    assert any(", then " in mission and ", and " in goal for mission, goal in texts)
    assert any(" after you " in mission for mission, _ in texts)
    assert not any("then" in goal or "after you" in goal for _, goal in texts)


@pytest.mark.parametrize(
    ("command", "reply"),
    [
        ("", "No change in state."),
        ("dance", "The action is not recognized. Please check valid actions."),
        ("pick up red ball 1", "The action is not recognized. Please check valid actions."),
        ("drop", "You cannot drop the object, as you are not carrying anything."),
        ("please CHECK", "You can take the following actions: turn left, turn right, "),
    ],
)
def test_what_is_refused_says_why_and_changes_nothing(command, reply):
    world = play(1, 0, "turn left")
    key, admissible = world.state_key(), world.scene.admissible
    seen = world.step(command)
    assert seen.text.startswith(reply)
    assert (world.state_key(), seen.admissible) == (key, admissible)


def test_case_and_outer_spaces_do_not_matter():
    assert play(1, 0, "  TURN Left ").state_key() == play(1, 0, "turn left").state_key()


def test_a_refusal_for_want_of_a_way_prints_the_doors_counted_so_far():
    cells = [EMPTY] * 49
    cells[7 * 5 + 2] = door(4, OPEN)
    for cell in (7 * 3 + 2, 7 * 3 + 4, 7 * 2 + 3, 7 * 4 + 3):  # all around
        cells[cell] = WALL
    cells[7 * 3 + 3] = door(5, CLOSED)
    scene = describe(int.from_bytes(cells), 3, EMPTY)
    assert scene.refusals["toggle and go through grey closed door 1"] == (
        "You cannot toggle and go through grey closed door {'yellow open door': 1, 'grey closed door': 1}, "
        "as there is no path leading to it."
    )


def test_a_success_that_comes_late_is_told_and_does_not_end_the_episode():
    world = play(3, 0)
    world.maze.steps = world.maze.level.max_steps
    seen = world.step(next(action for action in world.scene.actions if action.startswith("go to red ball")))
    assert seen.text.endswith("\n The task is completed.")
    assert (seen.done, seen.reward) == (False, max(world.reward, 0.0))
    assert world.reward < 0.5


def test_a_clone_and_its_original_part_ways():
    choose = random.Random(3)
    for level in (7, 23, 39):
        world = play(level, 5, "turn right", "move forward")
        twin, key = world.clone(), world.state_key()
        assert twin.state_key() == key
        commands, replies = [], []
        for _ in range(15):
            commands.append(choose.choice(world.scene.admissible))
            replies.append(world.step(commands[-1]))
        assert twin.state_key() == key
        assert [twin.step(command) for command in commands] == replies
        assert twin.state_key() == world.state_key() != key


def test_keys_are_equal_for_equal_states_and_no_others():
    assert play(1, 0, "turn left").state_key() == play(1, 0, "dance", "turn left", "check").state_key()
    assert play(1, 0).state_key() != play(1, 0, "turn left", "turn right").state_key(), "fewer steps earn more"
    assert play(1, 0).state_key() != play(1, 1).state_key()
    assert play(1, 0).state_key() != play(2, 0).state_key()


def test_a_level_with_few_mazes_gives_all_that_it_has_and_others_the_rest(monkeypatch):
    monkeypatch.setattr(games, "SHARED", (1, 13))
    levels = Counter(game.attributes["level"] for game in generate_games(200, 1, "train"))
    assert levels[13] < 100 < levels[1] and levels[1] + levels[13] == 200
    monkeypatch.setattr(games, "SHARED", (13,))
    with pytest.raises(DataError, match=f"have {levels[13]} different mazes: ask for fewer"):
        generate_games(200, 1, "train")


def test_generated_games_are_of_every_level_and_never_in_two_splits():
    made = {split: generate_games(40, 1, split) for split in ("train", "seen", "unseen")}
    assert {g.attributes["level"] for g in made["unseen"]} == set(UNSEEN)
    assert {g.attributes["level"] for g in made["train"]} == set(range(1, 41)) - set(UNSEEN)
    assert {g.attributes["level"] for g in made["seen"]} == set(range(1, 41)) - set(UNSEEN)
    assert [g.id for g in made["train"]] == sorted(g.id for g in made["train"])
    assert not {g.id for g in made["train"]} & {g.id for g in generate_games(40, 2, "seen")}
    assert made["train"] == generate_games(40, 1, "train")
    for each in made["train"][:3]:
        assert BabyAI().reset(each).text.endswith(f"Your goal: {each.goal}")


def test_a_level_without_more_mazes_asks_for_fewer(monkeypatch):
    monkeypatch.setattr(games, "_ATTEMPTS", 3)
    monkeypatch.setattr(games, "build_level", lambda number, seed: levels.make_level(3, 1_000))
    with pytest.raises(DataError, match=r"games.unseen: BabyAI's levels have 1 different mazes: ask for fewer"):
        generate_games(8, 0, "unseen")


def test_an_unknown_split_is_named():
    with pytest.raises(DataError, match="babyai: split 'test' is not one of train, seen, unseen"):
        generate_games(1, 0, "test")


def test_agentgyms_items_count_levels_first():
    assert [published_item(index) for index in (0, 39, 40, 899)] == [(1, 0), (40, 0), (1, 1), (20, 22)]


@pytest.mark.parametrize(
    ("made_from", "reason"),
    [
        ('{"level": 41, "seed": 0}', "babyai-1-0: BabyAI has the levels 1 to 40, not 41; leave the game out"),
        ('{"level": 1, "seed": -1}', "babyai-1-0: a BabyAI level is drawn from a seed of 0 or more, not -1; leave"),
        ('{"level": 1', 'babyai-1-0: its payload is not {"level": 1 to 40, "seed": 0 or more}'),
        ('{"seed": 1}', "babyai-1-0: its payload is not"),
    ],
)
def test_a_game_that_does_not_exist_is_refused_by_name(made_from, reason):
    with pytest.raises(UnsupportedGame) as refused:
        BabyAI().reset(replace(game(1, 0), payload=made_from))
    assert str(refused.value).startswith(reason)
    assert str(refused.value).endswith("leave the game out, or generate games anew (games.published: null)")


def test_the_spec_is_known_without_importing_minigrid():
    known = "import sys; from agentprm_core.worlds import world_spec; world_spec('babyai').make()"
    check_imports = "assert not {'minigrid', 'gymnasium', 'pygame'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", f"{known}; {check_imports}"], check=True)


def test_without_minigrid_the_extra_to_install_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "minigrid", None)
    levels._packages.cache_clear()
    said = r"babyai needs minigrid.*, which is not installed here: pip install minigrid==3.2.0 gymnasium==1.4.0$"
    with pytest.raises(DataError, match=said):
        levels.make_environment(1, 0)
    levels._packages.cache_clear()


@pytest.mark.parametrize("level", [1, 8, 16, 22, 23, 27, 28])
def test_the_bot_wins_easy_levels_and_goes_on_after_mistakes(level):
    spec, world = world_spec("babyai"), make_world("babyai")
    for corrupt in (0.0, 0.2):
        how = {"world_name": "babyai", "expert": "bot", "max_turns": 40, "seed": 1, "knowledge": 0.0}
        episode = demonstrate(world, game(level, 1_000), corrupt=corrupt, **how)
        assert episode.won == (episode.reward >= spec.success)
        assert episode.won or corrupt, episode.turns


def test_the_bot_gives_up_where_boxes_must_be_opened():
    world = make_world("babyai")
    how = {"world_name": "babyai", "expert": "bot", "max_turns": 40, "seed": 1, "knowledge": 0.0}
    episode = demonstrate(world, game(26, 1_000), **how)
    assert not episode.won


def test_names_with_numbers_and_steps_are_one_token_each():
    spec, seen = world_spec("babyai"), BabyAI().reset(game(1, 0))
    tokenizer = train_tokenizer([seen.text, *seen.admissible], 256, spec.phrases, spec.entity)
    assert tokenizer.tokenize(seen.text)[:9] == [
        *("in front of you in this room you can see several objects:", "there is", "grey key 1"),
        *("1 steps in front of you", "1 steps to your left", "there is", "grey ball 1"),
        *("1 steps in front of you", "1 steps to your right"),
    ]
    assert tokenizer.tokenize(seen.text)[-3:] == ["your goal:", "go to", "red ball"]
    assert tokenizer.tokenize("go to red ball 1") == ["go to", "red ball 1"]


def test_the_experts_success_is_measured_by_level():
    games = list(world_spec("babyai").generate(6, 1, "train"))
    figures = measure("babyai", games, "level", [10, 20], seed=1)
    assert figures["by"]["all"]["n"] == sum(row["n"] for level, row in figures["by"].items() if level != "all") == 6
    assert figures["by"][3] == {"n": 1, "won": [1.0, 1.0]}
    with pytest.raises(DataError, match="--by: 'colour' is not kind, nor an attribute of babyai: level, seed"):
        measure("babyai", games, "colour", [20], seed=1)
    twice = measure("babyai", games, "level", [10, 20], seed=1, episodes=2)
    assert twice["by"]["all"]["n"] == 12
