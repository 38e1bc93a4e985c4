"""docs/your-own-world.md does what it says: its files are written, its check is run, its campaign started."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.frame import layout

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/your-own-world.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def blocks(kind: str) -> list[str]:
    return [text for found, text in BLOCKS if found == kind]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository's working parts with the page's files in it."""
    folder = tmp_path_factory.mktemp("own_world")
    for part in ("agentprm_core", "tasks"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("params.yaml", "dvc.yaml"):
        shutil.copy(ROOT / file, folder)
    (folder / "profiles").mkdir()
    (folder / "lamps.py").write_text(blocks("python")[0])
    (folder / "lake.py").write_text(blocks("python")[1])
    (folder / "profiles/lamps.yaml").write_text(blocks("yaml")[0])
    shutil.copy(ROOT / "profiles/llama3b.yaml", folder / "profiles")
    return folder


def run(project: Path, program: str, *arguments: str) -> str:
    """What a line of the page prints, run in the project. ``agentprm`` is the project's own."""
    started = {"python": [], "agentprm": ["-m", "tasks.commands.cli"]}[program]
    unset = {"PYTHONPATH", "MLFLOW_TRACKING_URI"}
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment |= {"MLFLOW_DISABLE_TELEMETRY": "true", "GX_ANALYTICS_ENABLED": "false"}
    asked = [sys.executable, *started, *arguments]
    ran = subprocess.run(asked, cwd=project, env=environment, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_the_world_is_short() -> None:
    assert len([line for line in blocks("python")[0].splitlines() if line.strip()]) < 80


def without_speed(said: str) -> list[str]:
    return [line for line in said.splitlines() if "steps a second" not in line]


def test_the_check_says_what_the_page_shows(project: Path) -> None:
    (line,) = blocks("console")[0].splitlines()
    said = run(project, *line.split())
    (shown,) = blocks("text")
    assert without_speed(said) == without_speed(shown)
    assert "the expert wins 100% of 20 games" in said


GENERATE = """
from tasks.frame.params import load_params
from agentprm_core.worlds import world_spec
from agentprm_core.worlds.check_spec import game_faults
params = load_params()
spec = world_spec(params.env.world)
counts = {split: getattr(params.games, split) for split in ("train", "seen", "unseen")}
games = {split: spec.generate(count, params.seed, split) for split, count in counts.items()}
print(spec.name, [len(found) for found in games.values()], list(game_faults(spec, games)))
"""


def test_its_numbers_are_those_that_params_may_hold(project: Path) -> None:
    write, repro, summary = blocks("console")[1].splitlines()
    assert (repro, summary) == ("dvc repro", "python -m flows.summary")
    run(project, *write.split())
    assert run(project, "python", "-c", GENERATE) == "lamps [1500, 100, 100] []\n"


PRM = """
from agentprm_core.policy.models import load_checkpoint, save_checkpoint
from agentprm_core.prm.model import new_prm
from tasks.frame import layout
of = load_checkpoint(layout.policy(0))
save_checkpoint(of.model, of.tokenizer, layout.policy(3), world=of.world)
save_checkpoint(new_prm(of.model), of.tokenizer, layout.prm(3), kind="prm", world=of.world)
"""


@pytest.mark.slow
def test_the_campaign_starts_and_the_commands_after_it_find_the_world(project: Path) -> None:
    """Up to the first policy: the stages after it are the same for every world."""
    write = blocks("console")[1].splitlines()[0].split()
    run(project, *write[:-1], "demos.games=60", "sft.epochs=1", write[-1])
    for stage in ("games", "demos", "sft"):
        run(project, "python", "-m", f"tasks.{stage}")
    run(project, "python", "-c", PRM)  # in place of three iterations
    evaluate, show = (line.split() for line in blocks("console")[2].splitlines())
    assert "unseen" in run(project, *evaluate, "--limit", "5")
    run(project, *show)
    assert "light lamp 4, lamp 6 and no other" in (project / "show.html").read_text()
    policy = ("--policy", str(layout.policy(3)))
    assert "lamp" in run(project, "agentprm", "play", *policy)
    run(project, "agentprm", "evaluate", *policy, "--limit", "5")


def test_the_numbers_of_a_language_model_are_allowed_and_planned(project: Path) -> None:
    plan, make = (shlex.split(line) for line in blocks("console")[3].splitlines())
    shutil.copy(ROOT / "params.yaml", project)
    assert make[:2] == ["make", "run"] and make[2] == f"PROFILE={plan[3]}"
    said = run(project, "python", "-m", "tasks.frame.profile", *plan[3].split())
    assert "env.world=lamps:SPEC" in said and "model.source=meta-llama" in said
    assert "\nevaluate " in run(project, *plan)


def test_the_environment_of_gymnasium(project: Path) -> None:
    pytest.importorskip("gymnasium", reason="gymnasium is not installed")
    said = run(project, "agentprm", "check-world", "lake:SPEC", "--games", "3")
    assert said.startswith("lake: 3 games, ") and "BAD" not in said
