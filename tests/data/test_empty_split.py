"""A split may have no games (a published tree without valid_unseen): an empty table, on which nothing is evaluated."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

from agentprm_core.datasets import games_from_table, read_table
from agentprm_core.types import GAMES
from agentprm_core.worlds.alfworld.games import write_game
from agentprm_core.worlds.alfworld.households import generate_games
from tasks import evaluate, games
from tasks.frame import layout
from tasks.frame.stage import run_stage
from tests.data.project import raw_params, write_project

CHANGES = {
    "env": {"max_turns": 3},
    "games": {"published": "tree", "train": 2, "seen": 2, "unseen": 0},
    "demos": {"games": 2},
    "rollout": {"games": 2},
    "method": {"games": 2},
    "evaluate": {"decoding": ["greedy"]},
}


def test_a_split_without_games(checkpoints, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.chdir(tmp_path)
    write_project(tmp_path, raw_params("smoke", **CHANGES))
    held_out = [replace(game, id=f"valid_{game.id}") for game in generate_games(2, 1, "seen")]
    for game in [*generate_games(2, 1, "train"), *held_out]:
        write_game(game, Path("tree"))
    shutil.copytree(checkpoints / "policy", layout.policy(0))
    shutil.copytree(checkpoints / "prm", layout.prm(1))
    run_stage("games", games.work, iterated=False, gated=True, arguments=())
    made = {split: len(games_from_table(read_table(layout.games(split), GAMES))) for split in layout.SPLITS}
    assert made == {"train": 2, "seen": 2, "unseen": 0}
    run_stage("evaluate", evaluate.work, iterated=True, gated=True, arguments=["--iteration", "0"])
    assert json.loads(layout.headline(0).read_text()).keys() == {"seen"}
