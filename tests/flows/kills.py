"""Campaigns that get a SIGKILL again and again, at random moments: whether they go on, and end in the same bytes.

    python -m tests.flows.kills --kills 200 --json                  # three small stages that keep portions
    python -m tests.flows.kills --kills 30 --stages real --json     # the real stages, at the smallest sizes

A kill takes DVC, the stage and all that it started at once, as a machine that goes down does. Then the same command is
given again. A campaign that ended is compared with one that nobody killed, and the next one begins.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

import psutil
import pyarrow.parquet as pq
import yaml

from flows.mend import is_whole
from tests.waiting import until

ROOT = Path(__file__).parents[2]
_RUN = """import sys; from pathlib import Path; from flows.mend import mend; from dvc.cli import main
mend(Path()); sys.exit(main(["repro"]))"""
RUN = (sys.executable, "-c", _RUN)
"""What ``make run`` does, in one process."""
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

SOON_S = 0.5
"""Less than a stage takes, also one that has but its last portion left."""
Stamp = tuple[int, int]


class Moment(NamedTuple):
    """Of a kill: so many seconds after the start, or after the first look at which a stage runs."""

    in_a_stage: bool
    seconds: float


@dataclass
class Tally:
    """What came of the kills."""

    kills: int = 0
    same_bytes: int = 0
    """Kills of campaigns that ended in the bytes of the one that nobody killed."""
    lost_episodes: int = 0
    """Finished before a kill, and played again after it."""
    campaigns: int = 0
    in_a_stage: int = 0
    """Kills that met a stage's process; the others met DVC alone."""
    differing: list[str] = field(default_factory=list)


def campaigns(
    fresh: Path, kills: int, seed: int, span: float, env: Mapping[str, str], seconds: tuple[str, ...] = ()
) -> Tally:
    """Kill and start again until there were ``kills``; the last campaign runs to its end.

    ``fresh`` is a project in which nothing has run; campaigns are copies of it, of which the first is not killed. Every
    other kill comes at most ``span`` times the seconds of that one after a start. The rest wait for a process of a
    stage, however long that takes, and come at most :data:`SOON_S` later. ``seconds``: outs that state the clock, whose
    bytes are not compared. Raises AssertionError where a campaign that was killed does not go on.
    """
    alone, begun = copied(fresh, 0), time.monotonic()
    assert _run(alone, env, None)
    longest = span * (time.monotonic() - begun)
    expected, tally, draw = _outs(alone), Tally(), random.Random(seed)
    places = {stage: [out["path"] for out in said["outs"]] for stage, said in locked(alone).items()}
    while tally.kills < kills:
        tally.campaigns += 1
        folder, before, here = copied(fresh, tally.campaigns), {}, 0
        while not _run(folder, env, _moment(draw, longest, tally) if tally.kills < kills else None, tally):
            here += 1
            tally.lost_episodes += _lost(folder, before, places)
            before = _portions(folder)
            print(f"kill {tally.kills}: campaign {tally.campaigns}, {len(locked(folder))} stages are done", flush=True)
        tally.lost_episodes += _lost(folder, before, places)
        found = _outs(folder)
        wrong = [
            path for path in expected if found.get(path) != expected[path] and not path.startswith(seconds or "\0")
        ]
        tally.differing += [f"campaign {tally.campaigns}: {path}" for path in wrong]
        tally.same_bytes += 0 if wrong else here
        print(f"campaign {tally.campaigns}: {here} kills, {', '.join(wrong) or 'the same bytes'}", flush=True)
    return tally


def _moment(draw: random.Random, longest: float, tally: Tally) -> Moment:
    met = tally.kills % 2 == 1
    return Moment(met, draw.uniform(0, SOON_S if met else longest))


def copied(fresh: Path, number: int) -> Path:
    return Path(shutil.copytree(fresh, fresh.with_name(str(number))))


def _run(folder: Path, env: Mapping[str, str], moment: Moment | None, tally: Tally | None = None) -> bool:
    """Whether it ended by itself, well; else all of it was killed at that ``moment``."""
    log = folder.with_suffix(".log")
    with log.open("w") as out:
        running = subprocess.Popen(RUN, cwd=folder, env=env, stdout=out, stderr=out, start_new_session=True)
    try:
        if moment is not None and moment.in_a_stage:
            until(lambda: running.poll() is not None or _tree(running)[1:], 900, log.read_text, every=0.02)
        code = running.wait(None if moment is None else moment.seconds)
    except subprocess.TimeoutExpired:
        assert tally is not None
        tree = _tree(running)
        os.killpg(running.pid, signal.SIGKILL)  # also what was started since it was looked at
        for process in tree:  # and what has left the group
            with suppress(psutil.NoSuchProcess):
                process.kill()
        running.wait()
        psutil.wait_procs(tree)
        tally.kills += 1
        tally.in_a_stage += len(tree) > 1
        return False
    assert code == 0, log.read_text()[-3000:]
    return True


def _tree(running: subprocess.Popen) -> list[psutil.Process]:
    """It, and what it has started; nothing where it has ended."""
    try:
        first = psutil.Process(running.pid)
        return [first, *first.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def locked(folder: Path) -> dict:
    """The stages in DVC's lock file; none where a kill came while DVC wrote it, as the next start takes it away."""
    lock = folder / "dvc.lock"
    return yaml.safe_load(lock.read_text())["stages"] if lock.exists() and is_whole(lock) else {}


def ended(folder: Path, places: Mapping[str, list[str]]) -> set[str]:
    """Stages that DVC does not run again: in its lock file, or in its run cache where a kill tore that file."""
    cached = set()
    for entry in (folder / ".dvc" / "cache" / "runs").glob("*/*/*"):
        cached |= {out["path"] for out in (yaml.safe_load(entry.read_text()) or {}).get("outs", ())}
    return {*locked(folder), *(stage for stage, outs in places.items() if cached.issuperset(outs))}


def _outs(folder: Path) -> dict[str, str]:
    return {out["path"]: out["md5"] for stage in locked(folder).values() for out in stage["outs"]}


def _portions(folder: Path) -> dict[Path, tuple[Stamp, int]]:
    """Finished portions, with the episodes in each."""
    found = {}
    for path in (folder / ".scratch").rglob("*.parquet"):
        if not any(part.startswith(".") for part in path.relative_to(folder / ".scratch").parts):
            found[path] = (_stamp(path), _episodes(path))
    return found


def _lost(folder: Path, before: Mapping[Path, tuple[Stamp, int]], places: Mapping[str, list[str]]) -> int:
    """Episodes that were finished and have to be played again, or were: portions that were there ``before`` and are
    another file now, or none though their stage has not ended; and outs of such a stage that has no portions."""
    done, lost = ended(folder, places), 0
    for path, (stamp, episodes) in before.items():
        over = path.relative_to(folder / ".scratch").parts[0] in done
        lost += episodes if (_stamp(path) != stamp if path.exists() else not over) else 0
    for stage, outs in places.items():
        if stage not in done and not (folder / ".scratch" / stage).exists():
            lost += sum(_episodes(path) for out in outs for path in (folder / out).rglob("*.parquet"))
    return lost


def _stamp(path: Path) -> Stamp:
    stat = path.stat()
    return stat.st_mtime_ns, stat.st_size


def _episodes(path: Path) -> int:
    columns = [name for name in ("game_id", "episode") if name in pq.read_schema(path).names]
    table = pq.read_table(path, columns=columns or None)
    return table.group_by(columns).aggregate([]).num_rows if columns else table.num_rows


def small(folder: Path) -> Path:
    """A pipeline of three stages that play in portions, and import next to nothing."""
    folder.mkdir()
    (folder / "dvc.yaml").write_text(_DVC_YAML)
    (folder / "play.py").write_text(_PLAY)
    start = "import pyarrow as pa; from pathlib import Path; from agentprm_core.datasets import write_table; "
    start += "write_table(pa.table({'game_id': ['g'], 'episode': pa.array([0], pa.int32()), 'text': ['start']}), "
    start += "Path('data/0/table.parquet'))"
    for command in (["-c", start], ["-m", "dvc", "init", "-q", "--no-scm"]):
        subprocess.run([sys.executable, *command], cwd=folder, check=True, env=small_environment())
    return folder


def small_environment() -> dict[str, str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "DO_NOT_TRACK": "1"}


def real(folder: Path) -> Path:
    """The real stages at the smallest sizes."""
    from tests.flows.test_pipeline_smoke import project

    made = project(folder)
    subprocess.run([sys.executable, "-m", "dvc", "init", "-q", "--no-scm"], cwd=made, check=True)
    return made


def main() -> None:
    from tests.flows.test_pipeline_smoke import STATES_SECONDS, environment

    parser = argparse.ArgumentParser(prog="python -m tests.flows.kills", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--stages", choices=["small", "real"], default="small", help="what a campaign is made of")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--span", type=float, default=0.7, help="latest kill, in runs of the whole campaign")
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="agentprm-kills-") as folder:
        fresh = {"small": small, "real": real}[asked.stages](Path(folder) / "fresh")
        env = environment() | small_environment() | {"OMP_NUM_THREADS": "1"}
        tally = campaigns(fresh, asked.kills, asked.seed, asked.span, env, STATES_SECONDS)
    print(json.dumps(asdict(tally)) if asked.json else tally)


if __name__ == "__main__":
    main()
