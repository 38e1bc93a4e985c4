"""MMLU: letters, episodes in free text, the published files, files that are broken."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from agentprm_core.errors import DataError
from agentprm_core.types import Game
from agentprm_core.worlds import UnsupportedGame, make_world, world_spec
from agentprm_core.worlds.demonstrations import demonstrate
from agentprm_core.worlds.mmlu.games import load_games, normalise
from agentprm_core.worlds.mmlu.subjects import GROUP_OF, GROUPS

SPEC = world_spec("mmlu")
HEADER = "question,choice0,choice1,choice2,choice3,answer\n"
ROW = '"Which is prime, if any?",4,6,7,9,2\n'
SHARED = Path(__file__).resolve().parents[2] / "../shared/data/later/mmlu.tar.xz"


@pytest.fixture
def published() -> Path:
    root = Path(os.environ.get("MMLU_DATA", SHARED))
    if not root.exists():
        pytest.skip(f"no published MMLU: MMLU_DATA is not set and {SHARED} is not there")
    return root


def _write(folder: Path, text: str, subject: str = "abstract_algebra") -> Path:
    (folder / f"{subject}_dev.csv").write_text(text)
    return folder


@pytest.mark.parametrize(
    ("text", "letter"),
    [("B", "B"), (" b ", "B"), ("(c).", "C"), ("D.", "D"), ("**A**", "A"), ("E", None), ("AB", None), ("", None)],
)
def test_letters(text: str, letter: str | None) -> None:
    assert normalise(text) == letter


def test_an_episode(tmp_path: Path) -> None:
    (game,) = load_games(_write(tmp_path, HEADER + ROW), "dev", None)
    world = make_world("mmlu")
    text = world.reset(game).text
    assert text.startswith("Which is prime, if any?\nA. 4\nB. 6\nC. 7\nD. 9\n\nYour task is to: reason")
    assert world.step("7 has no divisors.").text == "Go on."
    assert world.step("#### 7").text == "Nothing happens: after #### comes a letter from A to D."
    assert world.clone().step("#### B") == ("Wrong.", (), 0.0, True)
    assert world.step("#### (c)") == ("Right.", (), 1.0, True)
    assert (game.kind, game.attributes["subject"]) == ("stem", "abstract_algebra")


def test_a_header_may_be_missing_and_an_answer_may_be_a_letter(tmp_path: Path) -> None:
    (game,) = load_games(_write(tmp_path, "Which?,1,2,3,4,B\n"), "dev", None)
    assert json.loads(game.payload)["answer"] == "B"


def test_a_question_twice_is_one_game_and_none_of_dev_is_in_test(tmp_path: Path) -> None:
    _write(tmp_path, HEADER + ROW + ROW)
    (tmp_path / "virology_test.csv").write_text(HEADER + ROW + "Which?,1,2,3,4,0\n")
    assert len(load_games(tmp_path, "dev", None)) == 1
    assert [game.kind for game in load_games(tmp_path, "test", None)] == ["other"]


def test_nobody_demonstrates() -> None:
    game = Game("a", "mmlu", "train", "stem", "say it", json.dumps({"question": "?", "answer": "A", "solution": []}))
    with pytest.raises(DataError, match="mmlu has no expert"):
        demonstrate(make_world("mmlu"), game, world_name="mmlu", max_turns=5, seed=0, knowledge=0.0)


def test_it_has_no_generator() -> None:
    with pytest.raises(DataError, match=r"mmlu has no generator: set games.published to .*MMLU_DATA"):
        SPEC.generate(1, 1, "train")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HEADER + ROW + "Which", r"abstract_algebra_dev.csv, line 3: 1 columns instead of 6 \(cut off\?\)"),
        (HEADER + ROW + '"Which is', r"line 3: unexpected end of data \(cut off\?\); fetch MMLU again"),
        (HEADER + "Which?,1,2,3,4,7\n", "line 2: the answer '7' is neither 0 to 3 nor A to D"),
        (HEADER + "Which?,1,2,3,4,AB\n", "line 2: the answer 'AB' is neither"),
        (HEADER + "Which?,1,2,3,4,\n", "line 2: the answer '' is neither"),
    ],
)
def test_a_broken_file_is_named_by_its_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(DataError, match=said):
        load_games(_write(tmp_path, text), "dev", None)


def test_a_file_of_another_subject_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="'alchemy' is not a subject of MMLU"):
        load_games(_write(tmp_path, ROW, "alchemy"), "dev", None)


def test_a_game_whose_answer_is_no_letter_is_named() -> None:
    payload = json.dumps({"question": "?", "answer": "E", "solution": []})
    with pytest.raises(UnsupportedGame, match="odd: the answer 'E' is not a letter from A to D"):
        make_world("mmlu").reset(Game("odd", "mmlu", "train", "stem", "say it now", payload))


def test_subjects() -> None:
    assert len(GROUP_OF) == 57 == sum(map(len, GROUPS.values()))


def test_the_published_games(published: Path) -> None:
    dev, test = load_games(published, "dev", None), load_games(published, "test", None)
    assert (len(dev), len(test)) == (284, 13932)
    assert {game.attributes["subject"] for game in test} == set(GROUP_OF)
    assert not {game.payload for game in dev} & {game.payload for game in test}
