"""Games on disk: what is read, what is skipped, and what bad trees get."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from agentprm_core.datasets import games_from_table, games_to_table
from agentprm_core.types import GAMES, Game
from agentprm_core.worlds import UnsupportedGame
from agentprm_core.worlds.alfworld.games import goal_params, load_games, write_game
from agentprm_core.worlds.alfworld.kinds import TASK_TYPES

PROBLEM = "(define (problem p)\n(:domain alfred)\n(:objects agent1 - agent)\n(:init)\n(:goal (and))\n)"


def _game(task: str = "pick_clean_then_place_in_recep-Mug-None-Cabinet-7", trial: str = "trial_1") -> Game:
    return Game(
        id=f"train/{task}/{trial}",
        world="alfworld",
        split="train",
        kind=task.split("-")[0],
        goal="put a clean mug in cabinet.",
        payload=PROBLEM,
        attributes={"floor_plan": 7, "source": "generated"},
    )


def _edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_written_game_is_read_back(tmp_path: Path) -> None:
    game = _game()
    write_game(game, tmp_path)
    assert load_games(tmp_path, "train") == [replace(game, attributes={**game.attributes, "source": "published"})]
    assert load_games(tmp_path / "json_2.1.1", "train") == load_games(tmp_path, "train")


def test_games_come_in_the_order_of_their_ids(tmp_path: Path) -> None:
    for trial in ("trial_3", "trial_1", "trial_2"):
        write_game(_game(trial=trial), tmp_path)
    write_game(_game("look_at_obj_in_light-Mug-None-DeskLamp-301", "trial_9"), tmp_path)
    ids = [game.id for game in load_games(tmp_path, "train")]
    assert ids == sorted(ids)
    assert len(ids) == 4


def test_a_smaller_sample_is_part_of_a_larger(tmp_path: Path) -> None:
    for number in range(12):
        write_game(_game(trial=f"trial_{number:02}"), tmp_path)
    samples = [{game.id for game in load_games(tmp_path, "train", limit)} for limit in range(13)]
    assert [len(sample) for sample in samples] == list(range(13))
    assert all(small < large for small, large in pairwise(samples))
    assert [g.id for g in load_games(tmp_path, "train", 5)] == sorted(samples[5])


def test_what_the_published_loader_skips_is_skipped(tmp_path: Path) -> None:
    kept = _game()
    write_game(kept, tmp_path)
    write_game(_game("pick_and_place_with_movable_recep-Apple-Bowl-Fridge-7"), tmp_path)
    write_game(_game("pick_and_place_simple-AppleSliced-None-Fridge-7"), tmp_path)
    write_game(replace(_game(trial="trial_other"), kind="place_all_obj_type_into_recep"), tmp_path)
    _edit(write_game(_game(trial="trial_unsolvable"), tmp_path), solvable=False)
    write_game(_game(trial="trial_without_game"), tmp_path).unlink()
    assert [game.id for game in load_games(tmp_path, "train")] == [kept.id]


def test_a_missing_split_names_those_there_are(tmp_path: Path) -> None:
    write_game(_game(), tmp_path)
    with pytest.raises(FileNotFoundError, match=r"no split 'valid_unseen' in .*json_2.1.1 \(there are: train\)"):
        load_games(tmp_path, "valid_unseen")
    with pytest.raises(FileNotFoundError, match="there are none; run alfworld-download"):
        load_games(tmp_path / "elsewhere", "train")


def test_an_empty_games_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "json_2.1.1" / "train").mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match="train holds no playable game"):
        load_games(tmp_path, "train")


def test_a_truncated_game_is_named(tmp_path: Path) -> None:
    path = write_game(_game(), tmp_path)
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(UnsupportedGame, match=r"trial_1/game.tw-pddl: not a whole JSON file .*; fetch it again"):
        load_games(tmp_path, "train")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pddl_problem": PROBLEM[:-10]}, "trial_1/game.tw-pddl: its PDDL problem is cut off; fetch it again"),
        ({"grammar": "grammar :: nothing"}, "trial_1/game.tw-pddl: its grammar has no action PutObject"),
    ],
)
def test_a_half_written_game_is_named(tmp_path: Path, changes: dict, message: str) -> None:
    _edit(write_game(_game(), tmp_path), **changes)
    with pytest.raises(UnsupportedGame, match=message):
        load_games(tmp_path, "train")


def test_missing_keys_are_named(tmp_path: Path) -> None:
    write_game(_game(), tmp_path).write_text(json.dumps({"grammar": ""}))
    with pytest.raises(UnsupportedGame, match=r"game\.tw-pddl: lacks pddl_domain, pddl_problem; fetch it again"):
        load_games(tmp_path, "train")


def test_the_old_dialect_is_refused_with_the_way_out(tmp_path: Path) -> None:
    path = write_game(_game(), tmp_path)
    grammar = json.loads(path.read_text())["grammar"]
    _edit(path, grammar=grammar.replace("move {o} to {r}", "put {o} in/on {r}"))
    with pytest.raises(
        UnsupportedGame, match=r"trial_1/game.tw-pddl: a game in the old dialect \('put {o} in/on {r}'"
    ) as e:
        load_games(tmp_path, "train")
    assert "alfworld-download" in str(e.value)
    assert "convert" in str(e.value)


def test_tables_keep_every_field_and_sort_by_id() -> None:
    games = [_game("look_at_obj_in_light-Mug-None-DeskLamp-301", "trial_2"), _game(trial="trial_1")]
    table = games_to_table(games[::-1])
    assert table.schema == GAMES
    assert games_from_table(table) == games
    assert games_to_table([]).schema == GAMES


def test_task_parameters_come_from_the_folder_name() -> None:
    assert goal_params(_game())["parent_target"] == "Cabinet"
    lamp = goal_params(_game("look_at_obj_in_light-Mug-None-DeskLamp-301"))
    assert (lamp["object_target"], lamp["toggle_target"], lamp["parent_target"]) == ("Mug", "DeskLamp", "")
    with pytest.raises(ValueError, match="train/nonsense/trial_1: the task folder is not"):
        goal_params(_game("nonsense"))


@pytest.mark.alfworld_data
def test_the_published_games_are_all_read(alfworld_data: Path) -> None:
    games = load_games(alfworld_data, "valid_seen")
    assert len(games) == 140
    assert {game.kind for game in games} == set(TASK_TYPES)
    assert all(game.goal.endswith(".") and game.attributes["source"] == "published" for game in games)
    assert len({game.kind for game in load_games(alfworld_data, "valid_seen", 24)}) > 3
