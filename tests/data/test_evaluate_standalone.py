"""``python -m tasks.evaluate`` by itself: any checkpoint, any games, one JSON object last."""

import json
import sys

import pytest

from agentprm_core.datasets import games_to_table, write_table
from agentprm_core.envs.alfworld.games import write_game
from agentprm_core.envs.alfworld.households import generate_games
from agentprm_core.policy.models import load_policy, new_model, save_policy
from agentprm_core.policy.tokenizer import train_tokenizer
from agentprm_core.prm.model import new_prm
from tasks import evaluate
from tasks.params import decoding_name
from tasks.playing import METHODS


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """A folder with an untrained policy, a PRM on its trunk, and two games as a table and as a tree."""
    folder = tmp_path_factory.mktemp("checkpoints")
    games = generate_games(2, 1, "unseen")
    words = [game.problem.replace("_bar_", " ") for game in games]
    tokenizer = train_tokenizer([*words, "go to cabinet 1", "look", "inventory", "help"], 512)
    model = new_model(tokenizer, width=8, layers=1, heads=2, kv_heads=1, context=512, seed=1)
    save_policy(model, tokenizer, folder / "policy")
    save_policy(new_prm(load_policy(folder / "policy").model), tokenizer, folder / "prm", kind="prm")
    write_table(games_to_table(games), folder / "unseen.parquet")
    for game in games:
        write_game(game, folder / "tree")
    return folder


def said(capsys, monkeypatch, *arguments: str) -> dict:
    monkeypatch.setattr(sys, "argv", ["evaluate", *map(str, arguments), "--max-turns", "3", "--json"])
    evaluate.main()
    return json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.mark.parametrize("method", METHODS)
def test_every_method_ends_with_one_json_object(checkpoints, capsys, monkeypatch, method):
    figures = said(
        capsys, monkeypatch, "--policy", checkpoints / "policy", "--prm", checkpoints / "prm",
        "--games", checkpoints, "--split", "unseen", "--method", method, "--n", 2, "--width", 2, "--samples", 2,
    )  # fmt: skip
    assert {"success", "ci_low", "ci_high", "games", "mean_actions", "seconds"} <= figures.keys()
    assert (figures["games"], figures["mean_actions"], figures["max_turns"]) == (2, 3.0, 3)
    assert figures["decoding"] == decoding_name(method, n=2, width=2, samples=2)
    assert (figures["prm_read"] > 0) == (method not in ("greedy", "sample"))
    assert figures["generated"] > 0


def test_a_published_tree_and_a_table_of_it_give_the_same(checkpoints, capsys, monkeypatch):
    common = ("--policy", checkpoints / "policy", "--split", "unseen", "--method", "sample")
    table = said(capsys, monkeypatch, *common, "--games", checkpoints)
    tree = said(capsys, monkeypatch, *common, "--games", checkpoints / "tree")
    assert {**table, "seconds": 0} == {**tree, "seconds": 0}


def test_on_published_games(checkpoints, alfworld_data, capsys, monkeypatch):
    figures = said(
        capsys, monkeypatch, "--policy", checkpoints / "policy", "--games", alfworld_data, "--split", "valid_seen",
        "--limit", 3,
    )  # fmt: skip
    assert figures["games"] == 3


def test_a_search_needs_a_prm(checkpoints, capsys, monkeypatch):
    arguments = ["evaluate", "--policy", "x", "--games", "y", "--split", "z", "--method", "beam"]
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit) as stopped:
        evaluate.main()
    assert stopped.value.code == 2
    assert "--method beam needs --prm, the PRM that chooses" in capsys.readouterr().err
