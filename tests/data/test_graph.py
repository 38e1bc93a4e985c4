"""dvc.yaml against the code: every stage's module, parameters and outs are what the tasks know."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tasks.frame import layout
from tasks.frame.params import PARAMS

ROOT = Path(__file__).parents[2]
STAGES = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
RAW = yaml.safe_load((ROOT / PARAMS).read_text())
SECTIONS = {"prm": "critic", "collect": "method", "policy": "method"}
"""Of stages that are not named as their section is."""


def definition(name: str) -> dict:
    return STAGES[name].get("do", STAGES[name])


def leaves(section: dict, prefix: str) -> set[str]:
    return {
        leaf
        for key, value in section.items()
        for leaf in (leaves(value, f"{prefix}.{key}") if isinstance(value, dict) else {f"{prefix}.{key}"})
    }


@pytest.mark.parametrize("name", STAGES)
def test_a_stage_lists_keys_that_exist_and_all_of_its_own(name):
    listed = definition(name)["params"]
    for key in listed:
        value = RAW
        for part in key.split("."):
            value = value[part]
    section = SECTIONS.get(name, name)
    own = leaves(RAW.get(section, {}), section)
    assert {leaf for leaf in own if not covered(leaf, listed)} == set()


def covered(leaf: str, listed: list[str]) -> bool:
    return any(leaf == key or leaf.startswith(f"{key}.") for key in listed)


@pytest.mark.parametrize("name", STAGES)
def test_a_stage_depends_on_its_module(name):
    assert f"tasks/{name}.py" in definition(name)["deps"]
    assert definition(name)["cmd"].startswith(f"python -m tasks.{name}")
    for path in definition(name)["deps"]:
        assert (path.startswith("data/") or "${" in path) or (ROOT / path).exists(), path


def test_outs_lie_where_the_tasks_put_them():
    outs = {out for name in STAGES for out in definition(name)["outs"] + definition(name).get("metrics", [])}
    for path in (
        layout.games("train").parent, layout.DEMOS.parent, layout.policy(0), layout.ITERATIONS, layout.REPORTS,
        layout.metrics("games"), layout.metrics("sft"), layout.gates("games"), layout.gates("demos"),
    ):  # fmt: skip
        assert path.as_posix() in outs
    for place in (
        layout.policy, layout.prm, layout.rollouts, layout.headline,
        lambda i: layout.labels(i).parent, lambda i: layout.collected(i).parent, lambda i: layout.outcomes(i).parent,
        lambda i: layout.metrics(f"rollout-{i}"), lambda i: layout.metrics(f"evaluate-{i}"),
        *(lambda i, name=name: layout.gates(f"{name}-{i}") for name in ("rollout", "label", "collect", "evaluate")),
    ):  # fmt: skip
        assert place(7).as_posix() in {out.replace("${key}", "7") for out in outs}


@pytest.mark.integration
def test_git_leaves_the_outs_to_dvc(tmp_path):
    """An out that git tracks too is refused by DVC, and `git add .` would commit the data."""
    listed = [out for name in STAGES for out in definition(name)["outs"] + definition(name).get("metrics", [])]
    outs = {out.replace("${key}", "1") for out in listed}
    run = {"cwd": tmp_path, "capture_output": True, "text": True}
    subprocess.run(["git", "init", "-q"], check=True, **run)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/.gitignore").write_text((ROOT / "data/.gitignore").read_text())
    ignored = subprocess.run(["git", "check-ignore", *sorted(outs)], **run).stdout.split()
    assert set(ignored) == outs


@pytest.mark.integration
def test_dvc_reads_the_graph(tmp_path):
    for name in ("dvc.yaml", PARAMS):
        (tmp_path / name).write_text((ROOT / name).read_text())
    run = {"cwd": tmp_path, "check": True, "capture_output": True, "text": True}
    subprocess.run([sys.executable, "-m", "dvc", "init", "-q", "--no-scm"], **run)
    listed = subprocess.run([sys.executable, "-m", "dvc", "stage", "list", "--name-only"], **run).stdout.split()
    assert listed == [
        "games", "demos", "sft",
        *(f"{name}@{i}" for name in ("rollout", "label", "prm", "collect", "policy") for i in (1, 2, 3)),
        *(f"evaluate@{i}" for i in range(4)), "compare",
    ]  # fmt: skip
