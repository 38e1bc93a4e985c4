"""Recipes: every experiment they ask of DVC has parameters that are valid, stages that exist and a name of its own, and
what they compare learns from the same plays. params.yaml stays as it was, and the newest of a name is kept."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from dvc.utils.hydra import apply_overrides

from tasks.frame.params import PARAMS, Params, validate
from tasks.frame.profile import PROFILES

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[2]
RECIPES = sorted((ROOT / "recipes").glob("*.sh"))
ON_DEVICES = [
    (path, device) for path in RECIPES for device in ("cpu", "cuda") if device == "cpu" or "DEVICE" in path.read_text()
]
DVC = '#!/bin/sh\nprintf "%s\\t" "$@" >> calls\necho >> calls\necho >> params.yaml\n'
PYTHON = f"""#!/bin/sh
[ "$2" = tasks.frame.profile ] && exec {sys.executable} "$@"
echo "$@" >> runs
"""
"""Profiles are looked up, whatever else a recipe runs is written down."""
EQUAL_PLAYS = ("labels", "rollouts", "search", "shaping", "signals")
"""Recipes whose methods do not all learn from branched states."""


def project(folder: Path, dvc: str = DVC, python: str = PYTHON) -> Path:
    """The recipes with this tree's parameters, and these scripts in the tools' place."""
    (folder / PROFILES).mkdir()
    for path in (PARAMS, *(PROFILES / found.name for found in (ROOT / PROFILES).glob("*.yaml"))):
        (folder / path).write_text((ROOT / path).read_text())
    tools = folder / ".venv/bin"
    tools.mkdir(parents=True)
    for name, script in (("dvc", dvc), ("python", python)):
        (tools / name).write_text(script)
        (tools / name).chmod(0o755)
    (folder / "recipes").symlink_to(ROOT / "recipes")
    return folder


def run(folder: Path, *command: str | Path, **variables: str) -> int:
    environment = os.environ | {"PATH": f"{folder / '.venv/bin'}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment | variables).returncode


def calls(folder: Path) -> list[list[str]]:
    """Arguments of each call of dvc."""
    return [line.rstrip("\t").split("\t") for line in (folder / "calls").read_text().splitlines()]


def experiments(folder: Path) -> dict[str, tuple[Params, list[str]]]:
    """The valid parameters and the targets of each experiment that dvc was asked for, by its name in the end."""
    found = {}
    asked = calls(folder)
    for ran, renamed in zip(asked[::2], asked[1::2], strict=True):
        assert ran[:3] == ["exp", "run", "-n"]
        assert renamed[:-1] == ["exp", "rename", "-f", ran[3]]
        name, rest = renamed[-1], ran[4:]
        assert name not in found
        overrides = [rest[i + 1] for i, word in enumerate(rest) if word == "-S"]
        targets = [word for i, word in enumerate(rest) if word != "-S" and (i == 0 or rest[i - 1] != "-S")]
        params = folder / "overridden.yaml"
        params.write_text((ROOT / PARAMS).read_text())
        apply_overrides(params, overrides)
        found[name] = validate(yaml.safe_load(params.read_text()), " ".join(ran)), targets
    return found


@pytest.mark.parametrize(("recipe", "device"), ON_DEVICES, ids=[f"{path.stem}-{device}" for path, device in ON_DEVICES])
def test_a_recipe_asks_for_experiments_that_can_be(recipe, device, tmp_path):
    folder = project(tmp_path)
    (folder / "data/checkpoints/prm/1").mkdir(parents=True)
    assert run(folder, "sh", "-eu", recipe, ALFWORLD_DATA="games", DEVICE=device) == 0
    assert (folder / PARAMS).read_text() == (ROOT / PARAMS).read_text()  # nothing is left to the next experiment
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
    asked = experiments(folder)
    for params, targets in asked.values():
        for target in targets:
            stage, number = target.split("@")
            assert "foreach" in stages[stage]
            assert number in (params.policies if stage == "evaluate" else params.iterations)
        if recipe.stem in EQUAL_PLAYS:
            assert params.rollout.branch.train_states == params.rollout.branch.random_states == 0
        updated = not targets or any(target.startswith("evaluate") and target != "evaluate@0" for target in targets)
        if updated and recipe.stem != "climb":
            assert not params.prm.require_ranking
    assert all(re.fullmatch(rf"{recipe.stem}(-[a-z0-9_.-]*[a-z0-9])?", name) for name in asked)
    runs = folder / "runs"
    for line in runs.read_text().splitlines() if runs.exists() else []:
        module = line.split()[1]
        assert (ROOT / f"{module.replace('.', '/')}.py").exists()


def test_signals_learn_from_the_same_episodes_in_groups(tmp_path):
    assert run(project(tmp_path), "sh", "-eu", ROOT / "recipes/signals.sh") == 0
    asked = {name: params for name, (params, _) in experiments(tmp_path).items()}
    assert len(asked) == 7
    groups = asked["signals-grpo"].rollout
    assert {params.rollout.model_dump_json() for params in asked.values()} == {groups.model_dump_json()}
    assert (groups.games, groups.episodes_per_game) == (450, 8)


@pytest.mark.parametrize("recipe", ["alfworld", "experts", "signals"])
def test_a_profile_that_cannot_be_read_ends_the_recipe(recipe, tmp_path):
    (project(tmp_path) / PROFILES / "inverse.yaml").unlink()
    assert run(tmp_path, "sh", ROOT / f"recipes/{recipe}.sh", ALFWORLD_DATA="games") == 2
    assert not (tmp_path / "calls").exists()


def test_a_prm_of_an_earlier_run_is_not_searched_with(tmp_path):
    folder = project(tmp_path, dvc="#!/bin/sh\nexit 1\n")
    (folder / ".scratch/recipes/search/orm").mkdir(parents=True)
    run(folder, "sh", ROOT / "recipes/search.sh")
    assert list((folder / ".scratch/recipes/search").iterdir()) == []


@pytest.mark.parametrize(("end", "code"), [("kill -TERM $PPID", -signal.SIGTERM), ("exit 3", 3)])
def test_an_experiment_that_is_stopped_leaves_params_as_they_were(end, code, tmp_path):
    folder = project(tmp_path, dvc=DVC + end)
    assert run(folder, "sh", "recipes/experiment", "one", "-S", "seed=2") == code
    assert (folder / PARAMS).read_text() == (ROOT / PARAMS).read_text()
    assert [call[:2] for call in calls(folder)] == [["exp", "run"]]  # an experiment of that name stays


def test_make_runs_a_profile_as_an_experiment(tmp_path):
    folder = project(tmp_path)
    for name in ("Makefile", "requirements.lock", "pyproject.toml"):
        (folder / name).write_text((ROOT / name).read_text())
    (folder / ".venv/.installed").touch()
    assert run(folder, "make", "run", "PROFILE=smoke", MLFLOW_TRACKING_URI="elsewhere") == 0
    ((params, targets),) = experiments(folder).values()
    assert (params.rollout.games, targets) == (32, [])
    assert (folder / PARAMS).read_text() == (ROOT / PARAMS).read_text()
    assert (folder / "runs").read_text() == "-m flows.summary\n"


@pytest.mark.slow
def test_an_experiment_replaces_that_of_its_name_and_runs_nothing_twice(tmp_path):
    """By DVC itself, on one stage that counts how often it ran."""
    binaries = Path(sys.executable).parent
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    (tmp_path / PARAMS).write_text("seed: 1\n")
    (tmp_path / "dvc.yaml").write_text(
        "stages: {grow: {cmd: 'echo ran >> ran; cp params.yaml out', params: [seed], outs: [out]}}"
    )
    (tmp_path / ".gitignore").write_text("/ran\n/out\n")
    environment = os.environ | {
        "PATH": f"{binaries}:{os.environ['PATH']}", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull,
        **{f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    }  # fmt: skip

    def do(command: str) -> str:
        done = subprocess.run(command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    do("git init -q . && dvc init -q && git add . && git commit -qm project")
    for seed in (2, 2, 3):
        do(f"sh recipes/experiment one -S seed={seed}")
        assert (tmp_path / PARAMS).read_text() == "seed: 1\n"
        assert do("dvc exp list --name-only").split() == ["one"]
    assert (tmp_path / "ran").read_text().split() == ["ran", "ran"]
    do("dvc exp apply one")
    assert "seed: 3" in (tmp_path / PARAMS).read_text()


def test_the_list_of_recipes_is_whole():
    listed = re.findall(r"^\| `(\w+\.sh)` \|", (ROOT / "recipes/README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == [path.name for path in RECIPES]
