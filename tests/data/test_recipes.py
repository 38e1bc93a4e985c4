"""Recipes: every experiment they ask of DVC has parameters that are valid, stages that exist and a name of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from dvc.utils.hydra import apply_overrides

from tasks.params import PARAMS, validate
from tasks.profile import PROFILES

ROOT = Path(__file__).parents[2]
RECIPES = sorted((ROOT / "recipes").glob("*.sh"))
PYTHON = f"""#!/bin/sh
[ "$2" = tasks.profile ] && exec {sys.executable} "$@"
echo "$@" >> runs
"""
"""Profiles are looked up, whatever else a recipe runs is written down."""


def asked(recipe: Path, folder: Path) -> tuple[list[list[str]], list[str]]:
    """What the recipe asks of dvc, a list of arguments a call, and what it runs beside."""
    (folder / PROFILES).mkdir()
    for path in (PARAMS, *(PROFILES / found.name for found in (ROOT / PROFILES).glob("*.yaml"))):
        (folder / path).write_text((ROOT / path).read_text())
    tools = folder / "tools"
    tools.mkdir()
    for name, script in (
        ("dvc", '#!/bin/sh\nprintf "%s\\t" "$@" >> calls\necho >> calls\necho >> params.yaml\n'),
        ("python", PYTHON),
    ):
        (tools / name).write_text(script)
        (tools / name).chmod(0o755)
    (folder / "data/checkpoints/prm/1").mkdir(parents=True)
    environment = os.environ | {
        "PATH": f"{tools}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "ALFWORLD_DATA": "games",
    }  # fmt: skip
    (folder / "recipes").symlink_to(ROOT / "recipes")
    subprocess.run(["sh", "-eu", recipe], cwd=folder, env=environment, check=True)
    assert (folder / PARAMS).read_text() == (ROOT / PARAMS).read_text()  # nothing is left to the next experiment
    calls = [line.rstrip("\t").split("\t") for line in (folder / "calls").read_text().splitlines()]
    runs = folder / "runs"
    return calls, runs.read_text().splitlines() if runs.exists() else []


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_asks_for_experiments_that_can_be(recipe, tmp_path):
    calls, runs = asked(recipe, tmp_path)
    params = tmp_path / PARAMS
    stages, names = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"], []
    for call in calls:
        assert call[:3] == ["exp", "run", "-n"]
        names.append(call[3])
        rest = call[4:]
        overrides = [rest[i + 1] for i, word in enumerate(rest) if word == "-S"]
        targets = [word for i, word in enumerate(rest) if word != "-S" and (i == 0 or rest[i - 1] != "-S")]
        params.write_text((ROOT / PARAMS).read_text())
        apply_overrides(params, overrides)
        valid = validate(yaml.safe_load(params.read_text()), " ".join(call))
        for target in targets:
            stage, number = target.split("@")
            assert "foreach" in stages[stage]
            assert number in (valid.policies if stage == "evaluate" else valid.iterations)
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(rf"{recipe.stem}(-[a-z0-9_.-]*[a-z0-9])?", name) for name in names)
    for run in runs:
        module = run.split()[1]
        assert (ROOT / f"{module.replace('.', '/')}.py").exists()


def test_the_list_of_recipes_is_whole():
    listed = re.findall(r"^\| `(\w+\.sh)` \|", (ROOT / "recipes/README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == [path.name for path in RECIPES]
