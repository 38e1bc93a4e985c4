"""``python -m tasks.evaluate`` by itself: any checkpoint, any games, one JSON object last."""

import json
import sys

import pytest
import torch

from tasks import compute, evaluate
from tasks.params import decoding_name
from tasks.playing import STANDALONE


def said(capsys, monkeypatch, *arguments: str) -> dict:
    monkeypatch.setattr(sys, "argv", ["evaluate", *map(str, arguments), "--max-turns", "3", "--json"])
    evaluate.main()
    return json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.mark.parametrize("method", STANDALONE)
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


@pytest.mark.parametrize("method", STANDALONE)
def test_every_method_plays_in_bfloat16(checkpoints, capsys, monkeypatch, method):
    monkeypatch.setattr(compute, "playing_dtype", lambda where: torch.bfloat16)  # as on a GPU
    figures = said(
        capsys, monkeypatch, "--policy", checkpoints / "policy", "--prm", checkpoints / "prm", "--games", checkpoints,
        "--split", "unseen", "--method", method, "--n", 2, "--width", 2, "--samples", 2, "--precision", "bfloat16",
    )  # fmt: skip
    assert (figures["games"], figures["inadmissible"]) == (2, 0.0)


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
