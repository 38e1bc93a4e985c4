"""A campaign's stages one after another, on a machine without DVC and MLflow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from flows import stages_in_order
from flows.leash import leashed
from tasks.frame import layout
from tasks.frame.order import all_stages
from tasks.frame.params import ParamsError, load_params
from tests.data.project import raw_params, write_project
from tests.flows.test_pipeline_smoke import ROOT, environment, project
from tests.waiting import until

ABSENT = ["dvc", "prefect", "mlflow", "trl", "alfworld", "textworld", "ray"]
"""What a lent machine has not."""


@pytest.fixture
def params(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_project(tmp_path, raw_params())
    return load_params()


def stages_that(monkeypatch, **scripts: str) -> None:
    """Each stage is a script of Python, an empty one unless it is given here."""

    def command(stage: str) -> list[str]:
        return [sys.executable, "-c", scripts.get(stage.replace("@", "_"), "")]

    monkeypatch.setattr(stages_in_order, "command", command)


def ran(params, out: Path, seconds: float = 600.0, begin: str = "games") -> dict:
    return stages_in_order.run(params, begin, time.monotonic() + seconds, out)


def test_the_order_has_every_stage_of_the_graph_after_what_it_reads(params):
    graph = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
    order = list(all_stages(params))
    assert {stage.split("@")[0] for stage in order} == set(graph)
    assert len(order) == len(set(order))
    for i, entry in params.iterations.items():
        assert order.index(f"policy@{i}") > order.index(f"collect@{i}") > order.index(f"prm@{i}")
        assert not entry.prev or order.index(f"rollout@{i}") > order.index(f"policy@{entry.prev}")
        assert order.index(f"evaluate@{i}") > order.index(f"policy@{i}")


def test_a_stage_that_is_killed_is_run_again_and_no_other(params, monkeypatch, tmp_path):
    plays = "import time; print('playing', flush=True); open('plays', 'w'); time.sleep(3600)"
    stages_that(monkeypatch, rollout_1=plays)
    given = []

    @contextmanager
    def out_of_time(command, *arguments, **how):
        """Once it plays."""
        with leashed(command, *arguments, **how) as process:
            wait = process.wait

            def late(seconds=None):
                if seconds is None:
                    return wait()
                given.append(seconds)
                until(Path("plays").exists)
                return wait(0)

            if command[-1] == plays:
                process.wait = late
            yield process

    with monkeypatch.context() as patched:
        patched.setattr(stages_in_order, "leashed", out_of_time)
        stopped = ran(params, tmp_path / "out")
    assert stopped["stopped"] == "rollout@1" and not stopped["failed"] and 0 < given[0] < 600
    assert list(stopped["ended"]) == ["games", "demos", "sft"]
    assert (tmp_path / "out" / "stages.log").read_text() == "playing\n"
    stages_that(monkeypatch, sft="raise SystemExit('it ran before')")
    finished = ran(params, tmp_path / "out")
    assert finished["stopped"] is None and list(finished["ended"]) == list(all_stages(params))


def test_a_stage_that_fails_ends_the_run(params, monkeypatch, tmp_path):
    stages_that(monkeypatch, demos="raise SystemExit('no games')")
    failed = ran(params, tmp_path / "out")
    assert (failed["stopped"], failed["failed"], list(failed["ended"])) == ("demos", True, ["games"])
    assert "no games" in (tmp_path / "out" / "stages.log").read_text()


def test_it_begins_where_it_is_told_to(params, monkeypatch, tmp_path):
    stages_that(monkeypatch, games="raise SystemExit(1)", demos="raise SystemExit(1)")
    assert next(iter(ran(params, tmp_path / "out", begin="sft")["ended"])) == "sft"
    with pytest.raises(ParamsError, match=r"--begin: 'rollout' is not allowed: params.yaml has games, demos"):
        ran(params, tmp_path / "out", begin="rollout")


def test_other_parameters_run_every_stage(params, monkeypatch, tmp_path):
    stages_that(monkeypatch)
    ran(params, tmp_path / "out")
    write_project(tmp_path, raw_params(seed=2))
    stages_that(monkeypatch, games="raise SystemExit(1)")
    assert ran(load_params(), tmp_path / "out")["stopped"] == "games"


@pytest.mark.slow
def test_a_campaign_without_dvc_and_mlflow(tmp_path):
    folder, bare = project(tmp_path / "campaign"), tmp_path / "bare"
    env = environment()
    for stage in ("games", "demos"):
        subprocess.run([sys.executable, "-m", f"tasks.{stage}"], cwd=folder, env=env, check=True)
    bare.mkdir()
    (bare / "sitecustomize.py").write_text(f"import sys\nsys.modules.update(dict.fromkeys({ABSENT}))\n")
    env["PYTHONPATH"] = os.pathsep.join([str(bare), str(folder), str(ROOT)])
    asked = [sys.executable, "-m", "flows.stages_in_order", "--begin", "sft", "--out", "out"]
    done = subprocess.run(asked, cwd=folder, env=env, capture_output=True, text=True)
    said = (folder / "out" / "stages.log").read_text()
    assert done.returncode == 0, done.stderr + said[-3000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["stopped"] is None and set(report["policies"]) == {"0", "1"}
    with tarfile.open(folder / "out" / "figures.tar.gz") as archive:
        assert layout.ITERATIONS.as_posix() in archive.getnames()
