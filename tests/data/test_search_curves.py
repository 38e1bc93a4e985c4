"""``python -m tasks.commands.search_curves``: every cell once, kept over a kill, and the table that comes of them."""

import json
import sys
from dataclasses import replace

import pytest

from agentprm_core.datasets import read_table
from agentprm_core.evaluate import OUTCOMES
from agentprm_core.search.decoding_config import decoding
from agentprm_core.search.playing import PlaySettings, Search
from tasks.commands import curves, search_curves

SMALL = ("--best-of", "2", "--beams", "1x2,2x2", "--max-turns", "3", "--slots", "8")


def run(monkeypatch, capsys, checkpoints, out, *arguments: str, prms=("ours", "rival")) -> str:
    named = [word for name in prms for word in ("--prm", f"{name}={checkpoints / 'prm'}")]
    common = ("--policy", checkpoints / "policy", "--games", checkpoints, "--split", "unseen", "--out", out)
    monkeypatch.setattr(sys, "argv", ["search_curves", *map(str, common), *named, *SMALL, *arguments])
    search_curves.main()
    return capsys.readouterr().out


def test_the_table_the_picture_and_what_a_second_run_keeps(checkpoints, tmp_path, monkeypatch, capsys):
    said = run(monkeypatch, capsys, checkpoints, tmp_path)
    assert "[10/10] beam_2x2 rival: " in said and "kept" not in said
    written = json.loads((tmp_path / "curves.json").read_text())
    cells = [(row["search"], row["prm"], row["decoding"]) for row in written["rows"]]
    assert sorted(cells) == sorted([
        ("greedy", "policy", "greedy"), ("sample", "policy", "sample"),
        *((search, prm, name) for prm in ("ours", "rival") for search, name in (
            ("best_of_n", "best_of_2"), ("best_trajectory", "best_trajectory_of_2"),
            ("beam", "beam_1x2"), ("beam", "beam_2x2"),
        )),
    ])  # fmt: skip
    for row in written["rows"]:
        assert (row["games"], row["v_greedy"]["games"]) == (2, 2)
        assert row["tokens"] == row["policy_read"] + row["prm_read"] > 0
        if row["search"] == "beam":  # also steps to where the path has been
            assert row["world_steps"] >= 3
        else:
            assert row["world_steps"] == (6 if row["search"] == "best_trajectory" else 3)
    # both PRMs are one checkpoint, so neither is better
    rivals = [row["v_first"] for row in written["rows"] if "v_first" in row]
    assert [(test["difference"], test["p_value"], test["p_holm"]) for test in rivals] == [(0, 1, 1)] * 4
    assert "| PRM | best_of_2 |" in said and "| PRM | beam_1x2 | beam_2x2 |" in said
    assert "(+0.0, p 1) |" in said and "corrected for all 4 such tests (Holm)" in said
    assert {round(row["times"], 6) for row in written["efficiency"]} == {1.0}
    assert len(written["efficiency"]) == 3 * 2
    assert (tmp_path / "curves.png").read_bytes()[:4] == b"\x89PNG"
    assert read_table(tmp_path / "outcomes.parquet", OUTCOMES).num_rows == 10 * 2

    files = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    next((tmp_path / "cells").glob("rival-beam_2x2-*")).unlink()  # as a kill would leave it
    said = run(monkeypatch, capsys, checkpoints, tmp_path)
    assert said.count("kept") == 9
    assert files == {path: path.read_bytes() for path in files}


def test_other_settings_play_anew_and_another_prm_adds_its_cells(checkpoints, tmp_path, monkeypatch, capsys):
    run(monkeypatch, capsys, checkpoints, tmp_path, prms=("ours",))
    assert run(monkeypatch, capsys, checkpoints, tmp_path).count("kept") == 6
    assert "kept" not in run(monkeypatch, capsys, checkpoints, tmp_path, "--seed", "2", prms=("ours",))


def test_another_prior_plays_again_what_it_decides():
    room = {"context": 512, "max_action_tokens": 8, "slots": 8, "cache_mb": 1}
    play = PlaySettings("alfworld", max_turns=3, constrained=True, **room)
    search = Search(decoding("sample"), play, 1.0, prior=0.1)
    cells, others = (curves.plan(["prm"], s, [2], [(2, 2)], 4) for s in (search, replace(search, prior=0.2)))
    again = [(cell.prm, cell.search.way.method) for cell, other in zip(cells, others, strict=True) if cell != other]
    assert again == [("prm", "best_of_n"), ("prm", "beam"), ("oracle", "best_of_n")]


def test_the_likelihood_is_a_rival_in_every_search(checkpoints, tmp_path, monkeypatch, capsys):
    run(monkeypatch, capsys, checkpoints, tmp_path, "--likelihood", prms=("ours",))
    written = json.loads((tmp_path / "curves.json").read_text())
    likely = {row["decoding"]: row for row in written["rows"] if row["prm"] == "likelihood"}
    assert likely.keys() == {"best_of_2", "best_trajectory_of_2", "beam_1x2", "beam_2x2"}
    assert all("v_first" in row for row in likely.values())
    assert likely["best_trajectory_of_2"]["prm_read"] == 0 < likely["best_of_2"]["prm_read"]
    assert {found["rival"] for found in written["efficiency"]} == {"likelihood"}
    said = run(monkeypatch, capsys, checkpoints, tmp_path / "alone", "--likelihood", prms=())
    assert "best_trajectory_of_2 likelihood: " in said


def test_the_headroom_needs_no_prm_and_adds_its_cells_to_those_of_prms(checkpoints, tmp_path, monkeypatch, capsys):
    said = run(monkeypatch, capsys, checkpoints, tmp_path, "--oracle", "2", prms=())
    assert "[3/3] best_of_2 oracle: " in said
    rows = {row["prm"]: row for row in json.loads((tmp_path / "curves.json").read_text())["rows"]}
    assert rows.keys() == {"policy", "oracle"}
    # at most two candidates at each of three turns, two plays of three actions each; none where the samples agree
    assert rows["oracle"]["prm_read"] > 0 and 3 < rows["oracle"]["world_steps"] <= 3 + 3 * 2 * 2 * 3
    assert (tmp_path / "curves.png").read_bytes()[:4] == b"\x89PNG"
    said = run(monkeypatch, capsys, checkpoints, tmp_path, "--oracle", "2")
    assert said.count("kept") == 3
    written = json.loads((tmp_path / "curves.json").read_text())
    assert {found["rival"] for found in written["efficiency"]} == {"rival"}
    assert "kept" not in run(monkeypatch, capsys, checkpoints, tmp_path, "--oracle", "3", prms=()).split("oracle:")[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--best-of", "1,2"), "argument --best-of: '1' is not a whole number that is at least 2"),
        (("--best-of", "2,4,2"), "argument --best-of: '2,4,2' has '2' twice: name each once"),
        (("--beams", "4"), "argument --beams: '4' is not like 4x8: nodes kept x actions drawn"),
        (("--beams", "2x2,2x2"), "argument --beams: '2x2,2x2' has '2x2' twice: name each once"),
        (("--beams", "9x1"), "a beam of width 9 needs as many --slots, not 8"),
        (("--prm", "policy=x"), "'policy=x' is not NAME=FOLDER"),
        (("--prm", "oracle=x"), "'oracle=x' is not NAME=FOLDER"),
        (("--prior", "-1"), "argument --prior: '-1' is not a number that is at least 0"),
        (("--prior", "nan"), "argument --prior: 'nan' is not a number that is at least 0"),
        (("--beams", "2x2,1x1"), "argument --beams: 1x1 is sampling: keep or draw more than 1"),
        (("--prm", "twice=x", "--prm", "twice=y"), "--prm: 'twice' is there twice: give each PRM a name of its own"),
        (("--oracle", "0"), "argument --oracle: '0' is not a whole number that is at least 1"),
    ],
)
def test_what_cannot_be_measured_is_said_before_anything_is(
    checkpoints, tmp_path, monkeypatch, capsys, arguments, message
):
    with pytest.raises(SystemExit) as stopped:
        run(monkeypatch, capsys, checkpoints, tmp_path, *arguments)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_somebody_has_to_choose(checkpoints, tmp_path, monkeypatch, capsys):
    with pytest.raises(SystemExit) as stopped:
        run(monkeypatch, capsys, checkpoints, tmp_path, prms=())
    assert stopped.value.code == 2
    assert "nobody chooses: --prm NAME=FOLDER, --oracle PLAYS or --likelihood, or several" in capsys.readouterr().err


def test_a_folder_without_a_checkpoint(checkpoints, tmp_path, monkeypatch, capsys):
    with pytest.raises(SystemExit, match=r"^search_curves: "):
        run(monkeypatch, capsys, checkpoints, tmp_path, "--prm", f"none={tmp_path}")
