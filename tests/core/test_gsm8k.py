"""GSM8K: numbers that are the same answer, episodes in free text, the published files, files that are broken."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from agentprm_core.errors import DataError
from agentprm_core.types import Game
from agentprm_core.worlds import UnsupportedGame, make_world, world_spec
from agentprm_core.worlds.demonstrations import demonstrate
from agentprm_core.worlds.gsm8k.answers import normalise
from agentprm_core.worlds.gsm8k.games import load_games

SPEC = world_spec("gsm8k")
ROW = {
    "question": "Janet has 16 eggs, eats 3, bakes with 4 and sells the rest for $2 each. How much is that?",
    "answer": "Janet sells 16 - 3 - 4 = <<16-3-4=9>>9 eggs.\nShe makes 9 * 2 = $<<9*2=18>>18.\n#### 18",
}
SHARED = Path(__file__).resolve().parents[2] / "../shared/data/later/gsm8k.tar.xz"


@pytest.fixture
def published() -> Path:
    root = Path(os.environ.get("GSM8K_DATA", SHARED))
    if not root.exists():
        pytest.skip(f"no published GSM8K: GSM8K_DATA is not set and {SHARED} is not there")
    return root


def _write(folder: Path, *rows: dict | str) -> Path:
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    (folder / "train.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "test.jsonl").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def game(tmp_path: Path) -> Game:
    return load_games(_write(tmp_path, ROW), "test", None)[0]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("18", "18"),
        (" $1,080.00. ", "1080"),
        ("109,200,000", "109200000"),
        ("0.50", "0.5"),
        (".5", "0.5"),
        ("-3", "-3"),
        ("−3.0", "-3"),
        ("-0", "0"),
        ("50%", "50"),
        ("€12", "12"),
        ("**72**", "72"),
        ("007", "7"),
        ("9" * 40, "9" * 40),
        ("0" * 5000 + "1", "1"),
        ("-$5", "-5"),
        ("3.", "3"),
        ("3*6", None),
        ("5%3", None),
        ("$1$2", None),
        (".", None),
        (",", None),
        ("eighteen", None),
        ("18 eggs", None),
        ("1 8", None),
        ("1/2", None),
        ("1.2.3", None),
        ("", None),
        ("-", None),
        ("nan", None),
        ("1e3", None),
    ],
)
def test_numbers_that_are_one_answer(text: str, number: str | None) -> None:
    assert normalise(text) == number


def test_an_episode_of_reasoning(game: Game) -> None:
    world = make_world("gsm8k")
    first = world.reset(game)
    assert first.text.startswith("Janet has 16 eggs") and first.text.endswith("on a line #### NUMBER.")
    assert first.admissible == ()
    assert world.step("She sells 9 eggs.") == ("Go on.", (), 0.0, False)
    assert world.step("That makes $18. #### $18.00") == ("Right.", (), 1.0, True)


def test_a_wrong_number_loses(game: Game) -> None:
    world = make_world("gsm8k")
    world.reset(game)
    assert world.step("#### 17") == ("Wrong.", (), 0.0, True)


@pytest.mark.parametrize("line", ["", "  \n", "#### many", "####"])
def test_a_line_that_says_nothing_changes_nothing(game: Game, line: str) -> None:
    world = make_world("gsm8k")
    world.reset(game)
    key = world.state_key()
    seen = world.step(line)
    assert seen.text.startswith("Nothing happens") and not seen.done
    assert world.state_key() == key


def test_a_clone_reasons_on_alone(game: Game) -> None:
    world = make_world("gsm8k")
    world.reset(game)
    world.step("She sells 9 eggs.")
    twin, key = world.clone(), world.state_key()
    assert twin.state_key() == key
    twin.step("#### 18")
    assert world.state_key() == key != twin.state_key()
    assert world.step("#### 18").reward == 1.0
    assert world.state_key() == twin.state_key()


def test_the_expert_says_the_solution_without_its_notes(game: Game) -> None:
    how = {"world_name": "gsm8k", "max_turns": 20, "seed": 0, "knowledge": 0.0}
    episode = demonstrate(make_world("gsm8k"), game, **how)
    said = [turn.action for turn in episode.turns]
    assert said == ["Janet sells 16 - 3 - 4 = 9 eggs.", "She makes 9 * 2 = $18.", "#### 18"]
    assert episode.won and all(turn.valid for turn in episode.turns)
    assert game.kind == "2 steps"


def test_mistakes_need_commands_and_there_are_none(game: Game) -> None:
    how = {"world_name": "gsm8k", "max_turns": 20, "seed": 0, "knowledge": 0.0, "corrupt": 0.9}
    assert demonstrate(make_world("gsm8k"), game, **how).won


def test_it_has_no_generator() -> None:
    with pytest.raises(DataError, match=r"gsm8k has no generator: set games.published to .*GSM8K_DATA"):
        SPEC.generate(1, 1, "train")


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (
            (ROW, ROW | {"answer": "It is many.\n#### many"}),
            r"train.jsonl, line 2: the answer 'many' is no number after",
        ),
        (
            (ROW | {"answer": "no mark"},),
            "line 1: the answer 'no mark' is no number after ####; mend or delete the line",
        ),
        ((json.dumps({**ROW, "question": 5}),), "line 1: not a JSON object with question and answer"),
        ((ROW, json.dumps(ROW)[:60]), r"line 2: not a JSON object with question and answer \(cut off\?\)"),
        ((ROW | {"answer": 18},), "line 1: not a JSON object"),
        (("[]",), "line 1: not a JSON object"),
    ],
)
def test_a_broken_file_is_named_by_its_line(tmp_path: Path, rows: tuple, said: str) -> None:
    with pytest.raises(DataError, match=said):
        load_games(_write(tmp_path, *rows), "train", None)


def test_an_archive_cut_in_half_is_named(tmp_path: Path, published: Path) -> None:
    if published.is_dir():
        pytest.skip("GSM8K_DATA is a folder, not an archive")
    content = published.read_bytes()
    half = tmp_path / "gsm8k.tar.xz"
    half.write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=r"gsm8k.tar.xz: not a whole archive .* fetch GSM8K \(train.jsonl\) again"):
        load_games(half, "train", None)


def test_missing_data_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"games.published: .*nowhere is not there"):
        load_games(tmp_path / "nowhere", "train", None)
    with pytest.raises(DataError, match=r"holds no file of GSM8K \(test.jsonl\)"):
        load_games(tmp_path, "test", None)
    with pytest.raises(DataError, match="'dev' is not one of train, held_out, test"):
        load_games(tmp_path, "dev", None)


@pytest.mark.parametrize("answer", ["many", None, [18]])
def test_a_game_whose_answer_is_no_number_is_named(answer: object) -> None:
    payload = json.dumps({"question": "How many?", "answer": answer, "solution": []})
    with pytest.raises(UnsupportedGame, match=r"odd: the answer .* is not a number"):
        make_world("gsm8k").reset(Game("odd", "gsm8k", "train", "1 step", "say it now", payload))


def test_the_published_games(published: Path) -> None:
    games = {split: load_games(published, split, None) for split in ("train", "held_out", "test")}
    assert (len(games["train"]) + len(games["held_out"]), len(games["test"])) == (7473, 1319)
    assert not {game.payload for game in games["train"]} & {game.payload for game in games["held_out"]}
    assert {game.kind for game in games["train"]} <= set(SPEC.kinds)
    world = make_world("gsm8k")
    how = {"world_name": "gsm8k", "max_turns": SPEC.expert_turns, "seed": 0, "knowledge": 0.0}
    assert all(demonstrate(world, game, **how).won for game in games["test"])
