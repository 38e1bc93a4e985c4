"""Seconds of orchestration a stage: with ``dvc repro``, with Prefect, and on a worker of another checkout.

    python -m benchmarks.orchestration --json

``_s`` is the median over stages and repeats of what a stage takes beyond its own work: starting DVC and Prefect, MLflow
and Great Expectations, the snapshot, the transfers. With DVC it is what the table of ``compare`` says. ``_cpu_s``
are processor seconds a stage of all processes but the servers, the start and the end of the campaign among them; on a
machine with other work they say more. The stages are real ones at small sizes.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import yaml

from agentprm_core.arguments import count
from tests.flows.conftest import committed
from tests.flows.team import Store, answers, clean, end, launched, started
from tests.flows.test_pipeline_smoke import project
from tests.waiting import HOST, free_port

ROOT = Path(__file__).parents[1]
STAGES = ("games", "demos", "sft")
"""One after the other: nothing of one hides behind another."""
_FLOW = """
import json, sys
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from flows.campaign import campaign
state = campaign(name=sys.argv[1], workers=sys.argv[2] == "remote", return_state=True)
work = {run.stage: run.work_seconds for run in state.result()}
with get_client(sync_client=True) as client:
    of = FlowRunFilter(id=FlowRunFilterId(any_=[state.state_details.flow_run_id]))
    took = {run.name: run.total_run_time.total_seconds() for run in client.read_task_runs(flow_run_filter=of)}
print(json.dumps([took[stage] - seconds for stage, seconds in work.items()]))
"""
Measured = tuple[list[float], float]
"""Seconds of orchestration of each stage; processor seconds of all that ran."""


def pipeline(folder: Path) -> Path:
    """A repository of the stages, in which nothing has run."""
    made = project(folder)
    graph = yaml.safe_load((made / "dvc.yaml").read_text())
    graph["stages"] = {name: stage for name, stage in graph["stages"].items() if name in STAGES}
    (made / "dvc.yaml").write_text(yaml.safe_dump({"stages": graph["stages"]}, sort_keys=False))
    (made / "data/metrics").mkdir(parents=True)
    (made / "data/metrics/iterations.json").write_text("[]")  # what compare would write, which does not run
    (made / ".gitignore").write_text(".scratch/\n.prefect/\nmlflow.db\nmlruns/\n__pycache__/\n")
    committed(made)
    made_once = "from tasks.frame.mlflow_store import connect; connect()"  # as `make run` does
    subprocess.run([sys.executable, "-c", made_once], cwd=made, check=True, env=clean(), capture_output=True)
    return made


def run(command: list[str], folder: Path, env: dict[str, str]) -> tuple[str, float]:
    """Its last line, and the processor seconds of it and all that it started."""
    before = _children()
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command[:4])}: {done.stdout[-2000:]}{done.stderr[-3000:]}")
    return (done.stdout.splitlines() or [""])[-1], _children() - before


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def by_dvc(fresh: Path, number: int, env: dict[str, str]) -> tuple[Measured, float]:
    """And the processor seconds of the stages' own work."""
    folder = Path(shutil.copytree(fresh, fresh.with_name(f"dvc-{number}")))
    _, cpu = run([sys.executable, "-m", "dvc", "repro"], folder, env)
    told = [json.loads(path.read_text()) for path in folder.glob(".scratch/timings/*/*.json")]
    assert len(told) == len(STAGES)
    return ([one["orchestration"] for one in told], cpu), sum(one["work_cpu_seconds"] for one in told)


def by_prefect(folder: Path, name: str, env: dict[str, str], worker: psutil.Process | None) -> Measured:
    """Here, or on ``worker``."""
    before = _used(worker)
    said, cpu = run([sys.executable, "-c", _FLOW, name, "remote" if worker else "here"], folder, env)
    return json.loads(said), cpu + _used(worker) - before


def _used(process: psutil.Process | None) -> float:
    return sum(process.cpu_times()[:4]) if process else 0.0


@contextmanager
def prefect(folder: Path, env: dict[str, str]) -> Iterator[dict[str, str]]:
    """The environment of flows with a server of their own."""
    port = free_port()
    env = env | {"PREFECT_HOME": str(folder / "prefect"), "PREFECT_API_URL": f"http://{HOST}:{port}/api"}
    env |= {"PREFECT_SERVER_ANALYTICS_ENABLED": "false", "PYTHONPATH": str(ROOT)}
    log = folder / "prefect.log"
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", HOST, "--port", str(port)]
    server = launched(command, env, log)
    try:
        started(lambda: answers(f"http://{HOST}:{port}/api/health"), log.read_text)
        yield env
    finally:
        end(server)


@contextmanager
def team(fresh: Path, env: dict[str, str]) -> Iterator[tuple[Path, psutil.Process, dict[str, str]]]:
    """A checkout that asks for stages, the worker of another one, and the environment. They share Git and a store."""
    hosts = fresh.parent
    hub = hosts / "hub.git"
    subprocess.run(["git", "clone", "-q", "--bare", str(fresh), str(hub)], check=True)
    store = Store(hosts / "s3")
    env = env | store.variables()
    for name in ("asks", "works"):
        subprocess.run(["git", "clone", "-q", str(hub), str(hosts / name)], check=True)
        shutil.copy(fresh / "mlflow.db", hosts / name)
        (hosts / name / "flows").symlink_to(ROOT / "flows")
        (hosts / name / ".git/info/exclude").write_text("flows\n")
        told = [sys.executable, "-m", "dvc", "remote", "add", "-q", "--local", "--default", "store", "s3://dvc"]
        subprocess.run(told, cwd=hosts / name, check=True, env=env)
    subprocess.run([sys.executable, "-m", "flows.provision"], cwd=ROOT, check=True, env=env, capture_output=True)
    command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", "agentprm-cpu", "--limit", "1"]
    log = hosts / "worker.log"
    as_deployed = {"AGENTPRM_CHECKOUT": str(hosts / "works"), "PREFECT_WORKER_QUERY_SECONDS": "1"}  # deploy/worker.sh
    worker = launched(command, env | as_deployed, log)
    try:
        started(lambda: "started" in log.read_text(), log.read_text)
        yield hosts / "asks", psutil.Process(worker.pid), env
    finally:
        end(worker)
        store.close()


def measured(repeats: int) -> dict[str, float]:
    """Medians over stages and repeats."""
    figures: dict[str, float] = {"stages": len(STAGES), "repeats": repeats}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="agentprm-orchestration-")))
        fresh = pipeline(folder / "fresh")
        env = clean() | {"OMP_NUM_THREADS": "1", "MLFLOW_DISABLE_TELEMETRY": "true"}
        found = [by_dvc(fresh, number, env) for number in range(repeats)]
        work = statistics.median(cpu for _, cpu in found)
        figures |= _medians("dvc", [one for one, _ in found], work)
        env = stack.enter_context(prefect(folder, env))
        here = [Path(shutil.copytree(fresh, folder / f"prefect-{number}")) for number in range(repeats)]
        figures |= _medians("prefect", [by_prefect(each, each.name, env, None) for each in here], work)
        asks, worker, env = stack.enter_context(team(fresh, env))
        there = []
        for number in range(repeats):
            _reseed(asks / "params.yaml", number)
            there.append(by_prefect(asks, f"remote-{number}", env, worker))
        figures |= _medians("remote", there, work)
    return figures | {"load": round(os.getloadavg()[0], 1)}


def _reseed(path: Path, seed: int) -> None:
    """Else the store has what the next campaign makes."""
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {"seed": seed}, sort_keys=False))


def _medians(how: str, found: list[Measured], work: float) -> dict[str, float]:
    seconds = statistics.median(one for stages, _ in found for one in stages)
    cpu = statistics.median((used - work) / len(STAGES) for _, used in found)
    print(f"{how}: {seconds:.1f} s a stage, {cpu:.1f} CPU s", flush=True)
    return {f"{how}_s": round(seconds, 2), f"{how}_cpu_s": round(cpu, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.orchestration", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--repeats", type=count, default=3)
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object")
    asked = parser.parse_args()
    figures = measured(asked.repeats)
    print(json.dumps(figures) if asked.json else "\n".join(f"{name}: {value}" for name, value in figures.items()))


if __name__ == "__main__":
    main()
