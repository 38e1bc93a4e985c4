"""A small DVC project with two iterations, and a Prefect server of its own for the few tests that need one."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

# Prefect reads its settings when it is imported: nothing of these tests may reach a server or a home of the user's.
os.environ["PREFECT_HOME"] = tempfile.mkdtemp(prefix="prefect-home-")
os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] = "false"
os.environ["DO_NOT_TRACK"] = "1"

if TYPE_CHECKING:
    from tests.flows.team import Team

ROOT = Path(__file__).parents[2]

_DVC_YAML = """
vars:
  - iterations: {"1": {prev: 0}, "2": {prev: 1}}
stages:
  seed:
    cmd: python grow.py seed seed.txt data/0.txt
    deps: [seed.txt]
    outs: [data/0.txt]
    meta: {tags: [gpu]}
  grow:
    foreach: ${iterations}
    do:
      cmd: python grow.py grow@${key} data/${item.prev}.txt data/${key}.txt
      deps: ["data/${item.prev}.txt"]
      outs: ["data/${key}.txt"]
  measure:
    foreach: ${iterations}
    do:
      cmd: python grow.py measure@${key} data/${key}.txt data/measure-${key}.txt
      deps: ["data/${key}.txt"]
      outs: ["data/measure-${key}.txt"]
  compare:
    cmd: python grow.py compare data/measure-1.txt data/metrics/iterations.json
    deps: [data/measure-1.txt, data/measure-2.txt]
    outs: [data/metrics/iterations.json]
"""

_GROW = '''"""A stage: the input and a line. Writes aside and renames, as stages do; `naps`: who sleeps."""
import json, os, pathlib, sys, time

stage, source, out = sys.argv[1:]
print("growing", out)
gates = pathlib.Path(".scratch/gates")
gates.mkdir(parents=True, exist_ok=True)
row = {"table": "lines", "expectation": "E", "why": "grows", "success": True, "observed": "1", "rows": []}
(gates / f"{stage}.json").write_text(json.dumps([row]))
pathlib.Path(out).parent.mkdir(parents=True, exist_ok=True)
aside = pathlib.Path(out + ".aside")
aside.write_text("[{\\"method\\":" if out.endswith("json") else "half a")
portion = pathlib.Path(".scratch") / stage / "portion.txt"
if stage in pathlib.Path("naps").read_text().split() and not portion.exists():
    portion.parent.mkdir(parents=True, exist_ok=True)
    portion.write_text("half the work")
    print("napping")
    time.sleep(600)
if stage in pathlib.Path("faults").read_text().split():
    sys.exit(f"{stage}: the lines do not grow")
columns = "method iteration split decoding games success ci_low ci_high mean_reward mean_actions".split()
columns += "episodes_played tokens_trained seconds".split()
text = json.dumps([dict.fromkeys(columns, 1)]) if out.endswith("json") else open(source).read() + out
aside.write_text(text)
os.replace(aside, out)
'''


def committed(folder: Path) -> None:
    """A Git repository and DVC project of one commit."""
    author = ("-c", "user.name=tests", "-c", "user.email=tests@localhost")
    subprocess.run(["git", "init", "-q", "-b", "main"], cwd=folder, check=True)
    subprocess.run([sys.executable, "-m", "dvc", "init", "-q"], cwd=folder, check=True)
    subprocess.run(["git", "add", "-A"], cwd=folder, check=True)
    subprocess.run(["git", *author, "commit", "-q", "-m", "project"], cwd=folder, check=True)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder for one test: a DVC project of six stages, none of which has run."""
    (tmp_path / "dvc.yaml").write_text(_DVC_YAML)
    (tmp_path / "grow.py").write_text(_GROW)
    (tmp_path / "seed.txt").write_text("seed\n")
    (tmp_path / "naps").write_text("")
    (tmp_path / "faults").write_text("")
    (tmp_path / "params.yaml").write_text("compute: {device: cpu}\n")
    (tmp_path / ".gitignore").write_text(".scratch/\n.prefect/\n")
    committed(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return tmp_path


@pytest.fixture(scope="session")
def prefect_server() -> Iterator[None]:
    """A temporary Prefect server; takes about ten seconds, so the tests that need it share it."""
    from prefect.testing.utilities import prefect_test_harness

    with prefect_test_harness(server_startup_timeout=600):
        yield


@pytest.fixture(scope="session")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    """The servers of a team, set up. They take half a minute to start, so the tests that need them share them."""
    from tests.flows.team import DEPLOY, HEARTBEAT, Team

    team = Team(tmp_path_factory.mktemp("team"))
    try:
        environment = team.start().environment(**HEARTBEAT, PYTHONPATH=str(ROOT))
        subprocess.run(["sh", str(DEPLOY / "setup.sh")], cwd=ROOT, env=environment, check=True)
        yield team
    finally:
        team.close()


def processes_in(folder: Path, running: str | None = None) -> list[psutil.Process]:
    """Every living process whose current folder is ``folder`` or below it, this one not counted; of these, those with
    the word ``running`` in their command line."""
    found = []
    for process in psutil.process_iter():
        try:
            if (
                process.pid != os.getpid()
                and Path(process.cwd()).is_relative_to(folder)
                and process.status() != "zombie"
                and (running is None or running in process.cmdline())
            ):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found
