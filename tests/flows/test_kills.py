"""Thirty SIGKILLs at random moments of small campaigns: each goes on, and ends in the same bytes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.flows.conftest import ROOT
from tests.flows.kills import campaigns

_DVC_YAML = """
vars:
  - iterations: {"1": {prev: 0}, "2": {prev: 1}, "3": {prev: 2}}
stages:
  play:
    foreach: ${iterations}
    do:
      cmd: python play.py ${key}
      deps: [play.py, "data/${item.prev}/table.parquet"]
      outs: ["data/${key}"]
"""

_PLAY = '''"""A stage that plays in portions and keeps them, as the real ones do."""
import hashlib, pathlib, shutil, sys, time

import pyarrow as pa

from agentprm_core.datasets import atomic_write, read_table, write_table
from agentprm_core.kept import digest, kept

iteration = int(sys.argv[1])
schema = pa.schema([("game_id", pa.string()), ("episode", pa.int32()), ("text", pa.string())])
given = read_table(pathlib.Path(f"data/{iteration - 1}/table.parquet"), schema)["text"][0].as_py()
scratch = pathlib.Path(f".scratch/play@{iteration}")


def played(portion):
    time.sleep(0.1)
    text = hashlib.sha256(f"{given} {portion}".encode()).hexdigest()
    return pa.table({"game_id": [f"g{portion}"] * 4, "episode": range(4), "text": [text] * 4}, schema)


at = scratch / digest(given)
tables = [kept(at / f"{portion:05}.parquet", schema, lambda: played(portion)) for portion in range(8)]
with atomic_write(pathlib.Path(f"data/{iteration}")) as aside:
    write_table(pa.concat_tables(tables), aside / "table.parquet")
'''


def project(folder: Path) -> Path:
    folder.mkdir()
    (folder / "dvc.yaml").write_text(_DVC_YAML)
    (folder / "play.py").write_text(_PLAY)
    start = "import pyarrow as pa; from pathlib import Path; from agentprm_core.datasets import write_table; "
    start += "write_table(pa.table({'game_id': ['g'], 'episode': pa.array([0], pa.int32()), 'text': ['start']}), "
    start += "Path('data/0/table.parquet'))"
    for command in (["-c", start], ["-m", "dvc", "init", "-q", "--no-scm"]):
        subprocess.run([sys.executable, *command], cwd=folder, check=True, env=environment())
    return folder


def environment() -> dict[str, str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "DO_NOT_TRACK": "1"}


def test_thirty_kills_leave_no_trace(tmp_path: Path) -> None:
    tally = campaigns(project(tmp_path / "fresh"), 30, 0, 0.7, environment())
    assert tally.differing == []
    assert (tally.kills, tally.same_bytes, tally.lost_episodes) == (30, 30, 0)
    assert tally.in_a_stage >= 10, "most kills must meet a stage"
