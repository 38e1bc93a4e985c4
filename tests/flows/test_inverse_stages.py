"""InversePRM through the stages: two iterations on a toy world, and the same bytes whatever the outcomes are."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import yaml

from agentprm_core.branches import BRANCHES
from agentprm_core.credit.expert_and_learner import INVERSE
from agentprm_core.datasets import atomic_write, episodes_to_table, games_to_table, read_table, write_table
from agentprm_core.policy.models import load_checkpoint, save_checkpoint
from agentprm_core.types import EPISODES, Episode, Game
from tasks import label, prm
from tasks.frame import layout
from tasks.frame.params import PARAMS
from tasks.frame.profile import overridden
from tasks.frame.stage import run_stage
from tests.model import text_world

ROOT = Path(__file__).parents[2]
TINY = {
    "compute": {"threads": 1},
    "model": {"context": 256, "optimizer": "adamw"},
    "critic": {"epochs": 2, "learning_rate": 5.0e-3, "batch_tokens": 1024},
}


def write_params(folder: Path, profiles: tuple[str, ...] = ("smoke", "inverse"), **changes) -> None:
    params = yaml.safe_load((ROOT / PARAMS).read_text())
    for name in profiles:
        overridden(params, yaml.safe_load((ROOT / f"profiles/{name}.yaml").read_text()))
    (folder / PARAMS).write_text(yaml.safe_dump(overridden(overridden(params, TINY), changes)))
    (folder / params["env"]["code"]).mkdir(parents=True, exist_ok=True)


def write_policy(number: int) -> str:
    renderer = text_world.renderer()
    with atomic_write(layout.policy(number)) as folder:
        return save_checkpoint(text_world.small_model(renderer, seed=number), renderer.tokenizer, folder)


def noisy(path: Path, seed: int, schema: pa.Schema) -> None:
    """The same rows, every outcome drawn anew."""
    table, rng = read_table(path, schema), np.random.default_rng(seed)
    for column in [name for name in ("reward", "won") if name in schema.names]:
        drawn = rng.random(table.num_rows) < 0.5
        if "done" in schema.names:
            drawn &= table["done"].to_numpy()
        field = schema.get_field_index(column)
        table = table.set_column(
            field, schema.field(field), pa.array(drawn.astype(float)).cast(schema.field(field).type)
        )
    write_table(table, path)


def write_data(noise: int | None) -> None:
    games = [Game(f"game-{n:04d}", "alfworld", "train", "pick_and_place_simple", "take it.", "x") for n in range(60)]
    write_table(games_to_table(games), layout.games("train"))
    demos = [replace(episode, index=0) for episode in text_world.episodes(40, skill=1.0)]
    write_table(episodes_to_table(demos, iteration=0, method="expert", policy="expert"), layout.DEMOS)
    for i in (1, 2):
        digest = write_policy(i - 1)
        played = [e for e in text_world.episodes(20, 2, skill=0.3, first_game=20 * i) if e.length > 2]
        played[0] = replace(played[0], start=1)
        write_table(episodes_to_table(played, iteration=i, method="policy", policy=digest), layout.episodes(i))
        write_table(branches(played), layout.branches(i))
        if noise is not None:
            noisy(layout.episodes(i), noise + i, EPISODES)
            noisy(layout.branches(i), noise + i, BRANCHES)
    if noise is not None:
        noisy(layout.DEMOS, noise, EPISODES)


def branches(played: list[Episode]) -> pa.Table:
    """The right action wins and another loses."""
    rows = []
    for episode in played:
        game = int(episode.game_id.split("-")[1])
        for action in sorted({text_world.best(game, 0), "take mug"}):
            won = action == text_world.best(game, 0)
            rows += [(episode.game_id, episode.index, 0, action, "", k, won, 1) for k in range(2)]
    return pa.table(dict(zip(BRANCHES.names, map(list, zip(*rows)))), schema=BRANCHES)


def run(folder: Path, noise: int | None, monkeypatch: pytest.MonkeyPatch, ends: str = "told") -> dict[str, bytes]:
    """Bytes of all that label and prm wrote in two iterations, but for the figures that measure."""
    folder.mkdir()
    monkeypatch.chdir(folder)
    write_params(folder, critic={"ends": ends})
    write_data(noise)
    before = set(folder.rglob("*"))
    for i in ("1", "2"):
        run_stage("label", label.work, iterated=True, gated=True, arguments=["--iteration", i])
        run_stage("prm", prm.work, iterated=True, arguments=["--iteration", i])
    written = sorted(path for path in set((folder / "data").rglob("*")) - before if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in written if "prm-" not in path.name} | {
        f"curve {i}": (layout.PLOTS / f"prm-{i}.json").read_bytes() for i in (1, 2)
    }


def test_two_iterations_and_no_outcome_is_read(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    plain = run(tmp_path / "plain", None, monkeypatch)
    what_was_learnt_from()
    assert "data/checkpoints/prm/2/model.safetensors" in plain
    assert "data/metrics/stages/label-2.json" in plain
    assert run(tmp_path / "noisy", 7, monkeypatch) == plain


def test_cut_episodes_are_learnt_from_in_two_iterations(tmp_path, monkeypatch):
    """The same cuts in both, and no outcome is read either."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    plain = run(tmp_path / "plain", None, monkeypatch, ends="cut")
    first, second = (read_table(layout.labels(i), INVERSE).to_pandas() for i in (1, 2))
    demos = read_table(layout.DEMOS, EPISODES)
    assert (first["dataset"] == 0).sum() < demos.num_rows and first[first["dataset"] == 0]["terminal"].sum() == 40
    assert list(second[second["dataset"] < 2]["turn"]) == list(first["turn"])
    assert run(tmp_path / "noisy", 7, monkeypatch, ends="cut") == plain


def what_was_learnt_from():
    first, second = (read_table(layout.labels(i), INVERSE).to_pandas() for i in (1, 2))
    assert set(first["dataset"]) == {0, 1} and set(second["dataset"]) == {0, 1, 2}
    assert not second.loc[second["dataset"] > 0, "expert"].any()
    same = [name for name in INVERSE.names if name not in ("next_action", "weight")]
    both = second[second["dataset"] < 2][same].reset_index(drop=True)
    assert both.equals(first[same])  # what was there stays, but for the policy's own next actions and the balance
    expert = second[second["expert"] & ~second["terminal"]]
    admissible = set(text_world.play(0, 0).turns[0].admissible)
    assert set(expert["next_action"]) <= admissible and expert["next_action"].nunique() > 3
    figures = json.loads(layout.metrics("prm-1").read_text())
    assert figures["ranking"]["pairs"] > 0  # measured, on held-out games
    assert figures["choosing"]["states"] > 0 and figures["choosing"]["headroom"] is not None
    assert 0 <= figures["validation"]["auc"] <= 1
    first_curve, second_curve = (json.loads((layout.PLOTS / f"prm-{i}.json").read_text()) for i in (1, 2))
    assert second_curve[0]["prm_loss"] < first_curve[0]["prm_loss"]  # it goes on with the PRM before
    load_checkpoint(layout.prm(2), kind="prm")


def test_rows_of_other_episodes(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.chdir(tmp_path)
    write_params(tmp_path)
    write_data(None)
    run_stage("label", label.work, iterated=True, gated=True, arguments=["--iteration", "1"])
    rollouts = read_table(layout.episodes(1), EPISODES)
    write_table(rollouts.filter(pa.array(rollouts["game_id"].to_numpy(False) != "game-0021")), layout.episodes(1))
    with pytest.raises(SystemExit) as stopped:
        run_stage("prm", prm.work, iterated=True, arguments=["--iteration", "1"])
    assert stopped.value.code == (
        "prm@1: data/labels/1/labels.parquet: rows of other episodes than those of data/rollouts/1/episodes.parquet. "
        "Make them again: dvc repro label@1"
    )
    assert not layout.prm(1).exists()
