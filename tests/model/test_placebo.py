"""The placebo learns nothing of actions, and the benchmark tells an informed PRM from it."""

import itertools
import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentprm_core.datasets import games_to_table, write_table
from agentprm_core.errors import DataError
from agentprm_core.policy.models import MANIFEST, Checkpoint, save_checkpoint
from agentprm_core.prm.model import new_prm
from agentprm_core.prm.placebo import permuted
from agentprm_core.prm.rows import Labelled, Tried
from agentprm_core.prm.train import PrmSettings, train_prm
from agentprm_core.rollout import play, starts
from agentprm_core.search.decoding_config import decoding
from agentprm_core.search.playing import PlaySettings, Search, play_games
from agentprm_core.types import Episode, Game, Turn
from benchmarks import placebo, placebo_prm
from benchmarks.placebo_prm import train_placebo
from tests.model import toy

ROOT = Path(__file__).parents[2]
labels = st.lists(st.one_of(st.floats(0, 1, width=32), st.just(float("nan"))), min_size=1, max_size=6)
items = st.lists(st.tuples(labels, st.lists(st.floats(0, 1, width=32), max_size=3)), min_size=1, max_size=8)


def labelled(drawn) -> list[Labelled]:
    turn = Turn("you see a mug 1", "look", ("look",), True, "")
    return [
        Labelled(
            Episode(f"g{n}", 0, 0, (turn,) * len(q), False),
            np.array(q, np.float32),
            [Tried(0, "look", value) for value in tried],
        )
        for n, (q, tried) in enumerate(drawn)
    ]


def pool(found) -> Counter:
    return Counter(
        round(float(q), 6) for item in found for q in [*item.q[~np.isnan(item.q)], *(one.q for one in item.tried)]
    )


@settings(max_examples=50)
@given(items, st.integers(0, 9))
def test_a_permutation_moves_labels_and_nothing_else(drawn, seed):
    before = labelled(drawn)
    found = permuted(before, seed)
    assert pool(found) == pool(before)
    for old, new in zip(before, found, strict=True):
        assert new.episode is old.episode
        assert (np.isnan(new.q) == np.isnan(old.q)).all()
        assert [(t.turn, t.action) for t in new.tried] == [(t.turn, t.action) for t in old.tried]
    again = permuted(before, seed)
    assert all((a.q == b.q)[~np.isnan(a.q)].all() for a, b in zip(found, again))


def test_labels_cross_games_and_own_and_tried_ones_mix():
    before = labelled([([n / 100] * 3, [0.9 + n / 1000]) for n in range(60)])
    found = permuted(before, 1)
    own = [round(100 * float(q)) != n for n, item in enumerate(found) for q in item.q]
    assert np.mean(own) > 0.9
    assert any(q >= 0.9 for item in found for q in item.q) and any(t.q < 0.9 for item in found for t in item.tried)
    assert [list(item.q) for item in permuted(before, 2)] != [list(item.q) for item in found]
    assert before[0].q.tolist() == [0.0] * 3


def mugs(first: int, count: int) -> list[Game]:
    """Games whose task is to take a mug, and that have one: which action wins follows from its own words."""
    return list(itertools.islice(filter(_a_mug_to_take, map(toy.game, itertools.count(first))), count))


def _a_mug_to_take(game: Game) -> bool:
    world = toy.ToyWorld()
    seen = world.reset(game)
    return seen.text.endswith("take mug 1.") and any("mug" in lying for lying in world.places.values())


def worth(action: str) -> float:
    """What an action is worth in these games, near enough: taking the mug wins, taking another object leaves no hand
    free for it, and looking around does neither."""
    return 0.5 if not action.startswith("take") else float("mug" in action)


def episodes_with_labels(policy: Checkpoint) -> list[Labelled]:
    found, search = [], player()
    for episode in play(search.sampler(policy), starts(mugs(0, 60), 2, 3), **search.settings.worlds):
        takes = [(t, action) for t, turn in enumerate(episode.turns) for action in turn.admissible if "take" in action]
        tried = [Tried(t, action, worth(action)) for t, action in takes]
        found.append(Labelled(episode, np.array([worth(t.action) for t in episode.turns], np.float32), tried))
    return found


def player() -> Search:
    settings = PlaySettings(
        world="toy", max_turns=8, context=512, max_action_tokens=8, constrained=True, slots=64, cache_mb=512
    )
    return Search(decoding("sample"), settings, 4.0)


@pytest.fixture(scope="module")
def policy() -> Checkpoint:
    return toy.policy(sharpness=1.0)


def trained(policy: Checkpoint, data, scratch: Path) -> Checkpoint:
    how = PrmSettings(epochs=20, learning_rate=5e-3, batch_tokens=2048, save_every=0, seed=1)
    model, _ = train_prm(data, policy.renderer, new_prm(policy.model), how, scratch)
    return Checkpoint(model.eval(), policy.tokenizer, policy.renderer, "trained")


def test_an_informed_prm_beats_its_placebo(toy_engine, policy, tmp_path):
    """Both are trained on the same episodes for as many steps; the labels of one say what to take. The beam does not go
    back, so whoever takes nothing else comes to the mug."""
    data, games = episodes_with_labels(policy), mugs(5000, 60)
    prms = {
        "prm": trained(policy, data, tmp_path / "prm"),
        "placebo": trained(policy, permuted(data, 1), tmp_path / "placebo"),
    }
    cells = placebo.plan(["beam_1x16"], ["prm", "placebo", "random"], [0.0], player())
    played = list(placebo.measure(cells, policy, prms, {"train": games}, 5, tmp_path / "kept"))
    rows = {row["scorer"]: row for row in placebo.table(played)}
    assert rows["prm"]["v_prm"] is None
    assert np.mean(list(rows["prm"]["by_split"].values())) == pytest.approx(rows["prm"]["success"])
    for rival in ("placebo", "random"):
        test = rows[rival]["v_prm"]
        assert test["difference"] < -0.2 and test["p_holm"] < 0.01, rows
        assert test["difference"] == pytest.approx(rows[rival]["success"] - rows["prm"]["success"])
    kept = list(placebo.measure(cells, policy, prms, {"train": games}, 5, tmp_path / "kept"))
    assert [outcomes for _, outcomes in kept] == [outcomes for _, outcomes in played]
    search = replace(player(), way=decoding("beam_1x16"))
    by_hand = play_games(policy, prms["placebo"], games, search, 5)
    assert rows["placebo"]["success"] == np.mean([episode.won for episode in by_hand])
    tokens = [e.extra["cost"].policy_read + e.extra["cost"].prm_read for e in by_hand]
    assert rows["placebo"]["tokens"] == pytest.approx(np.mean(tokens))


BARE = """
import sys
for name in ("polars", "prefect", "mlflow", "great_expectations", "dvc", "tasks", "scipy"):
    sys.modules[name] = None
from benchmarks import placebo
placebo.main()
"""


@pytest.fixture
def folder(tmp_path, policy):
    save_checkpoint(policy.model, policy.tokenizer, tmp_path / "policy")
    model = new_prm(policy.model, 0.3)
    torch.manual_seed(0)
    with torch.no_grad():
        model.score.weight.normal_(std=0.5)
    save_checkpoint(model, policy.tokenizer, tmp_path / "prm", kind="prm")
    write_table(games_to_table([toy.game(n) for n in range(4)]), tmp_path / "table.parquet")
    return tmp_path


def arguments(folder, *more: str) -> list[str]:
    world = ("--world", "tests.model.toy:TOY", "--max-turns", "4", "--threads", "1")
    given = ("--policy", folder / "policy", "--prm", folder / "prm", "--games", folder / "table.parquet")
    return [*map(str, given), *world, "--split", "train", *more]


@pytest.mark.integration
def test_the_benchmark_needs_nothing_of_the_pipeline_and_ends_with_one_json_object(folder):
    command = [sys.executable, "-c", BARE, *arguments(folder, "--searches", "best_of_3,beam_1x3_back", "--json")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["games"] == {"train": 4}
    rows = {(row["search"], row["prior"], row["scorer"]): row for row in found["rows"]}
    assert len(rows) == 2 * 2 * 7
    for (search, prior, scorer), row in rows.items():
        assert (row["v_prm"] is None) == (scorer == "prm")
        if row["v_prm"]:
            difference = row["success"] - rows[search, prior, "prm"]["success"]
            assert row["v_prm"]["difference"] == pytest.approx(difference)
            assert row["v_prm"]["p_holm"] >= row["v_prm"]["p_value"]
        # a beam of width 1 that may go back is Best-of-N
        assert row["success"] == rows["best_of_3", prior, scorer]["success"]
    assert "best_of_3      0.1  random" in done.stdout


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--scorers", "luck"), "'luck' is not one of prm, head"),
        (("--scorers", "prm,placebo"), "--scorers placebo needs --placebo, a PRM of permuted labels"),
        (("--searches", "greedy"), "'greedy' is not allowed: best_of_N, beam_NxM, beam_NxM_back or beam_NxM_path"),
        (("--searches", "best_of_3_by_random"), "is not allowed: best_of_N, beam_NxM, beam_NxM_back or beam_NxM_path"),
        (("--prior", "0.1,-1"), "argument --prior: '-1' is not a number that is at least 0"),
        (("--prior", "0,0"), "argument --prior: '0,0' has '0' twice: name each once"),
        (("--scorers", "prm,prm"), "argument --scorers: 'prm,prm' has 'prm' twice: name each once"),
        (("--searches", "best_of_2,best_of_02"), "'best_of_2,best_of_02' has 'best_of_02' twice"),
        (("--split", "unseen,unseen"), "argument --split: 'unseen,unseen' has 'unseen' twice: name each once"),
        (("--split", "unseen,"), "argument --split: 'unseen,' has an empty name: "),
        (("--split", "unseen"), "--split: unseen: "),
        (("--games", "nowhere"), "--games: nowhere: no such file or folder"),
    ],
)
def test_what_cannot_be_asked_is_told_in_a_line(folder, monkeypatch, capsys, more, message):
    monkeypatch.setattr(sys, "argv", ["placebo", *arguments(folder, *more)])
    with pytest.raises(SystemExit) as stopped:
        placebo.main()
    said = capsys.readouterr().err or f"{stopped.value}\n"
    assert message in said and said.startswith("placebo: ") and said.count("\n") == 1


def test_a_folder_that_is_no_checkpoint_is_not_replaced(tmp_path):
    (tmp_path / "notes").touch()
    with pytest.raises(DataError, match=r"--out: .* is there, and is no checkpoint: name a folder that is not"):
        train_placebo(tmp_path, 1, tmp_path, tmp_path)
    assert (tmp_path / "notes").exists()


@pytest.mark.parametrize("wrong", [("--limit", "-3"), ("--iteration", "0")])
def test_a_placebo_of_no_episodes_or_no_iteration_is_refused(wrong, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["placebo_prm", "--out", str(tmp_path / "placebo"), *wrong])
    with pytest.raises(SystemExit):
        placebo_prm.main()
    said = f"placebo_prm: argument {wrong[0]}: '{wrong[1]}' is not a whole number that is at least 1"
    assert capsys.readouterr().err.startswith(said)


def test_parameters_of_another_campaign_are_refused(tmp_path):
    (tmp_path / "params.yaml").write_text((ROOT / "params.yaml").read_text())
    (policy := tmp_path / "data/checkpoints/policy/0").mkdir(parents=True)
    (policy / MANIFEST).write_text('{"world": "arithmetic"}')
    with pytest.raises(DataError, match=r"env.world is alfworld-training, .* trained in arithmetic: bring back"):
        train_placebo(tmp_path, 1, tmp_path / "placebo", tmp_path)
