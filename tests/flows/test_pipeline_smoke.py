"""The whole graph with one small iteration: by DVC, and again stage by stage with a kill in the middle, to the byte.

The graph, the code and the parameters are this tree's, in a folder of their own; only the numbers are smaller.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import yaml
from mlflow import MlflowClient

from tasks.frame import layout
from tasks.frame.params import PARAMS
from tasks.frame.profile import load_profile, overridden
from tests.waiting import until

ROOT = Path(__file__).parents[2]
TINY = {
    "compute": {"threads": 1, "slots": 16},
    "games": {"train": 1400, "seen": 12, "unseen": 12},
    "demos": {"games": 700},
    "rollout": {"games": 24, "branch": {"validation_states": 4}},
    "method": {"steps": 4},
    "iterations": {"1": {"prev": 0}},
    "policies": {"0": {"prm": 1}, "1": {"prm": 1}},
}
LOOP = ("rollout 1", "label 1", "prm 1", "collect 1", "policy 1")
STAGES = ("games", "demos", "sft", *LOOP, "evaluate 0", "evaluate 1", "compare")
STATES_SECONDS = (layout.ITERATIONS.as_posix(), layout.REPORTS.as_posix())


def tiny_params() -> dict:
    """params.yaml with the profile smoke, and smaller still."""
    params = yaml.safe_load((ROOT / PARAMS).read_text())
    overridden(params, load_profile("smoke", ROOT / "profiles"))
    return overridden(params, TINY) | {name: TINY[name] for name in ("iterations", "policies")}


def project(folder: Path) -> Path:
    folder.mkdir()
    for part in ("agentprm_core", "tasks"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("dvc.yaml", "requirements.lock"):
        shutil.copy(ROOT / name, folder)
    (folder / PARAMS).write_text(yaml.safe_dump(tiny_params(), sort_keys=False))
    (folder / ".dvcignore").write_text("__pycache__/\n.scratch/\n")
    return folder


def environment() -> dict[str, str]:
    """This environment, its interpreter first, and MLflow's database where the process runs."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MLFLOW_", "PYTHONPATH"))}
    return {**kept, "PATH": path, "MLFLOW_DISABLE_TELEMETRY": "true", "GX_ANALYTICS_ENABLED": "false"}


def dvc(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "dvc", *arguments], cwd=folder, env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


ONE_BY_ONE = """
import runpy, sys
for stage in sys.argv[1:]:
    name, *iteration = stage.split()
    sys.argv = [name, *(["--iteration", *iteration] if iteration else [])]
    runpy.run_module(f"tasks.{name}", run_name="__main__")
"""


def command(stage: str) -> list[str]:
    name, *iteration = stage.split()
    return [sys.executable, "-m", f"tasks.{name}", *(["--iteration", *iteration] if iteration else [])]


def outs(folder: Path) -> dict[str, bytes]:
    files = {path.relative_to(folder).as_posix(): path for path in (folder / "data").rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items() if not name.startswith(STATES_SECONDS)}


def test_the_pipeline(tmp_path):
    """One test, since all of it looks at one run of the graph, which takes a minute."""
    reproduced, again = project(tmp_path / "reproduced"), project(tmp_path / "again")
    dvc(reproduced, "init", "-q", "--no-scm")
    dvc(reproduced, "repro")
    a_second_repro_runs_nothing(reproduced)
    the_table_of_iterations(reproduced)
    mlflow_remembers(reproduced)
    benchmarks_read_a_finished_campaign(reproduced, tmp_path / "placebo")
    killed_in_the_middle_and_run_again_it_ends_in_the_same_bytes(reproduced, again)


def benchmarks_read_a_finished_campaign(folder: Path, aside: Path) -> None:
    rows = benchmark("ranking_matrix", "--campaign", str(folder))["rows"]
    assert [(row["scorer"], row["states_of"]) for row in rows] == [("PRM 1", 1), ("likelihood", 1)]
    figures = json.loads((folder / layout.metrics("prm-1")).read_text())
    assert rows[0]["ranking"] == figures["ranking"]
    assert figures["guard"]["ranking"].keys() == figures["ranking"].keys()
    assert rows[1]["ranking"] == figures["ranking_by_likelihood"]
    over = figures["ranking_over_likelihood"]
    assert over["pairs"] == figures["ranking"]["pairs"]
    assert (over["difference"] is None) == (over["pairs"] == 0)
    (row,) = benchmark("path_order", "--campaign", str(folder), "--games", "4", "--search", "beam_2x2")["rows"]
    assert (row["iteration"], row["world"], row["search"]["games"]) == (1, "alfworld", 4)
    assert row["states"]["ranking"] == figures["ranking"]
    placebo = benchmark("placebo_prm", "--campaign", str(folder), "--out", str(aside), "--limit", "8")
    assert 0 <= placebo["validation"]["auc"] <= 1
    assert (aside / "model.safetensors").exists()
    implicit = aside.with_name("implicit")
    told = benchmark("implicit_prm", "--campaign", str(folder), "--out", str(implicit), "--limit", "8")
    assert told["labels"] == "turns" and told["validation"]["actions"] == placebo["validation"]["actions"]
    assert (implicit / "model.safetensors").exists()
    relabelled = ("--out", str(aside.with_name("relabelled")), "--visited-by", "best_of_2", "--games", "16")
    told = benchmark("relabel", "--campaign", str(folder), *relabelled)
    assert told["played"]["episodes"] == 16 and told["validation"]["actions"] == placebo["validation"]["actions"]
    kept = aside.with_name("members")
    orders = benchmark("members", "--campaign", str(folder), "--out", str(kept), "--members", "2", "--limit", "8")
    assert list(orders["orders"]) == [n + way for n in ("1", "2", "average", "passes") for way in ("", "-halfway")]
    assert len({(kept / name / "model.safetensors").read_bytes() for name in orders["orders"]}) == 8
    few = ("--arms", "prm,placebo,rft,takeover", "--steps", "2", "--games", "16", "--placebo", str(aside))
    rows = benchmark("updates", "--campaign", str(folder), "--keep", str(aside.with_name("updates")), *few)["rows"]
    assert [row["arm"] for row in rows] == ["π₀", "prm", "placebo", "rft", "takeover"]
    assert len({row["imitated"] for row in rows[1:]}) == 1 and rows[1]["imitated"] > 0
    assert [row["v_prm"] is None for row in rows] == [False, True, False, False, False]


def benchmark(name: str, *arguments: str) -> dict:
    """The object that its last line is."""
    asked = [sys.executable, "-m", f"benchmarks.{name}", "--json", *arguments]
    done = subprocess.run(asked, cwd=ROOT, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def a_second_repro_runs_nothing(reproduced):
    assert "Running stage" not in dvc(reproduced, "repro")
    assert json.loads(dvc(reproduced, "status", "--json")) == {}


def the_table_of_iterations(reproduced):
    rows = json.loads((reproduced / layout.ITERATIONS).read_text())
    ways = ("best_of_2", "best_of_2_by_untrained_likelihood", "greedy")
    assert [(row["iteration"], row["split"], row["decoding"]) for row in rows] == [
        (i, split, decoding) for i in (0, 1) for split in ("seen", "unseen") for decoding in ways
    ]
    for row in rows:
        assert row["games"] == 12
        assert row["ci_low"] <= row["success"] <= row["ci_high"]
        assert row["seconds"] > 0
        assert 1 <= row["mean_actions"] <= 30
        assert (row["paired"] is None) == (row["iteration"] == 0)
    shown = dvc(reproduced, "metrics", "show", "--md")
    assert all(f"data/metrics/evaluate-{i}.json" in shown for i in (0, 1))
    assert "unseen.greedy.success" in shown
    report = (reproduced / layout.REPORTS / "iteration-1.md").read_text()
    assert "# Iteration 1" in report and "## What the PRM adds\n\nPRM 1 " in report
    plotted = json.loads(dvc(reproduced, "plots", "show", "--json"))
    assert any("success" in name for name in plotted["data"])


def mlflow_remembers(reproduced):
    client = MlflowClient(f"sqlite:///{reproduced}/mlflow.db")
    (experiment,) = client.search_experiments(filter_string="name = 'agentprm'")
    found = client.search_runs([experiment.experiment_id], max_results=1000)
    told = [(run.data.tags["stage"], run.data.tags.get("iteration"), run.info.run_id) for run in found]
    runs = {stage if number is None else f"{stage}@{number}": run for stage, number, run in told}
    assert len(runs) == len(told)
    history = client.get_metric_history(runs["campaign"], "evaluate.unseen.greedy.success")
    assert sorted(point.step for point in history) == [0, 1]
    adds = client.get_metric_history(runs["campaign"], "prm.adds")
    said = [json.loads((reproduced / layout.headline(i)).read_text())["prm"] for i in (0, 1)]
    assert {point.step: point.value for point in adds} == {i: found["adds"] for i, found in enumerate(said)}
    assert [found["adds_games"] for found in said] == [24, 24]
    assert client.get_run(runs["policy@1"]).data.tags["mlflow.parentRunId"] == runs["iteration@1"]
    (arena,) = client.search_registered_models()
    champion = client.get_model_version_by_alias(arena.name, "champion")
    assert champion.tags["iteration"] in ("0", "1")
    lock = yaml.safe_load((reproduced / "dvc.lock").read_text())["stages"]
    (games,) = [used for used in client.get_run(runs["demos"]).inputs.dataset_inputs if used.tags[0].value == "input"]
    assert games.dataset.name == layout.games("train").as_posix()
    policies = {out["path"]: out["md5"] for out in lock["sft"]["outs"]}
    (written,) = [used for used in client.get_run(runs["sft"]).inputs.dataset_inputs if used.tags[0].value == "output"]
    assert written.dataset.digest == policies[layout.policy(0).as_posix()]


def killed_in_the_middle_and_run_again_it_ends_in_the_same_bytes(reproduced, again):
    before, after = STAGES[:3], STAGES[3:]
    run_stages(again, before)
    kill_once_it_has_begun(again, after[0])
    run_stages(again, after)
    expected, found = outs(reproduced), outs(again)
    assert found.keys() == expected.keys()
    assert [name for name in expected if expected[name] != found[name]] == []


def run_stages(folder: Path, stages: tuple[str, ...]) -> None:
    """As ``python -m`` would, but in one process: what a stage leaves behind in it must not change the next."""
    done = subprocess.run(
        [sys.executable, "-c", ONE_BY_ONE, *stages], cwd=folder, env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def kill_once_it_has_begun(folder: Path, stage: str) -> None:
    """SIGKILL after the first portion is in scratch. Nothing of an out may be there."""
    before = outs(folder)
    log = folder.with_suffix(".log")
    with log.open("w") as out:
        running = subprocess.Popen(command(stage), cwd=folder, env=environment(), stdout=out, stderr=out)
    scratch = folder / layout.SCRATCH / stage.replace(" ", "@")  # beside it MLflow's spool, whose folders come and go
    until(lambda: list(scratch.rglob("*-00000.parquet")), 600, log.read_text, running, every=0.02)
    running.send_signal(signal.SIGKILL)
    running.wait()
    assert not (folder / layout.rollouts(1)).exists()
    assert outs(folder) == before
