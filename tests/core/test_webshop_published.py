"""WebShop against what was recorded of the published environment, where this machine has it."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from agentprm_core.errors import DataError
from agentprm_core.worlds.webshop.catalogue import ROOT
from agentprm_core.worlds.webshop.dialogues import check
from agentprm_core.worlds.webshop.games import SPLITS, load_games
from tests.core.webshop_published import DATA, needs_catalogue, needs_records, records


@pytest.fixture(scope="module")
def recorded() -> list[dict]:
    return records()


@needs_records
def test_every_record_is_as_published(recorded: list[dict]) -> None:
    report = check(recorded)
    assert report.first is None
    assert report.mismatches == 0
    assert report.dialogues > 90
    assert report.steps > 7_900


@needs_records
def test_a_dialogue_can_stand_alone(recorded: list[dict]) -> None:
    dialogues = [record for record in recorded if record["kind"] == "dialogue"]
    assert check(dialogues).mismatches == 0


@needs_records
def test_a_changed_record_is_found(recorded: list[dict]) -> None:
    dialogue = copy.deepcopy(next(record for record in recorded if record["kind"] == "dialogue"))
    dialogue["steps"][1]["observation"] += "!"
    report = check([dialogue])
    assert report.mismatches == 1
    assert report.first["id"] == dialogue["id"]
    assert report.first["step"] == 2
    assert report.first["expected"]["observation"] == report.first["found"]["observation"] + "!"


@needs_catalogue
def test_an_unknown_kind_of_record_says_so() -> None:
    with pytest.raises(DataError, match=r"its kind is 'start', and there are goal, .*; give the whole file of this"):
        check([{"kind": "start"}])


@needs_catalogue
def test_all_published_goals_are_in_one_split_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ROOT, str(DATA))
    games = [game for split in SPLITS for game in load_games(Path(DATA), split, None)]
    assert len(games) == len({game.id for game in games}) == 6901
    assert len({game.payload for game in games}) == len(games), "nine of the 6,910 goals are there twice"
