"""The published engine behind the contract: what it says is passed on, and it leaves no trace."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from agentprm_core.worlds.alfworld.games import load_games
from agentprm_core.worlds.alfworld.textworld import TextWorld


@pytest.mark.alfworld_data
def test_observations_are_verbatim_but_for_the_banner(alfworld_data: Path) -> None:
    (game,) = [g for g in load_games(alfworld_data, "valid_seen") if g.id.endswith("trial_T20190909_044715_250790")]
    world = TextWorld()
    assert world.reset(game).text == (
        "You are in the middle of a room. Looking quickly around you, you see a bed 2, a bed 1, a desk 1, a drawer 11, "
        "a drawer 10, a drawer 9, a drawer 8, a drawer 7, a drawer 6, a drawer 5, a drawer 4, a drawer 3, a drawer 2, "
        "a drawer 1, a dresser 1, a garbagecan 1, a safe 1, a sidetable 2, and a sidetable 1.\n\n"
        "Your task is to: look at alarmclock under the desklamp."
    )
    assert world.step("go to drawer 1").text == "You arrive at drawer 1. The drawer 1 is closed."
    opened = world.step("open drawer 1")
    assert opened.text == "You open the drawer 1. The drawer 1 is open. In it, you see a creditcard 1."
    assert "take creditcard 1 from drawer 1" in opened.admissible
    assert "opened drawer 1" in world.facts()
    assert world.step("help").text.startswith("Available commands:\n  look:")


@pytest.mark.alfworld_data
def test_loading_leaves_arguments_and_the_current_folder_alone(
    alfworld_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["mine", "--flag"])
    TextWorld().reset(load_games(alfworld_data, "valid_seen", 1)[0])
    assert sys.argv == ["mine", "--flag"]
    assert os.getcwd() == str(tmp_path)
    assert not list(tmp_path.iterdir())
