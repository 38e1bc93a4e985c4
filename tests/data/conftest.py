"""Checkpoints and games small enough to evaluate in a second."""

import pytest

from agentprm_core.datasets import games_to_table, write_table
from agentprm_core.policy.models import load_checkpoint, new_model, save_checkpoint
from agentprm_core.policy.tokenizer import train_tokenizer
from agentprm_core.prm.model import new_prm
from agentprm_core.worlds.alfworld.games import write_game
from agentprm_core.worlds.alfworld.households import generate_games


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """A folder with an untrained policy, a PRM on its trunk, and two games as a table and as a tree."""
    folder = tmp_path_factory.mktemp("checkpoints")
    games = generate_games(2, 1, "unseen")
    words = [game.payload.replace("_bar_", " ") for game in games]
    tokenizer = train_tokenizer([*words, "go to cabinet 1", "look", "inventory", "help"], 512)
    model = new_model(tokenizer, width=8, layers=1, heads=2, kv_heads=1, context=512, seed=1)
    save_checkpoint(model, tokenizer, folder / "policy")
    save_checkpoint(new_prm(load_checkpoint(folder / "policy").model), tokenizer, folder / "prm", kind="prm")
    write_table(games_to_table(games), folder / "unseen.parquet")
    for game in games:
        write_game(game, folder / "tree")
    return folder
