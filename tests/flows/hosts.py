"""Hosts of a team: clones with workers as ``deploy/worker.sh`` starts them, and what is seen of a campaign on them."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import yaml

from flows.provision import CAMPAIGN_POOL, CPU_POOL
from flows.snapshot import git
from tests.flows.conftest import committed
from tests.flows.team import DEPLOY, HEARTBEAT, ROOT, Team, launched
from tests.waiting import free_port


def tree(folder: Path, write: Callable[[Path], None]) -> Path:
    """A Git repository, without a remote, of this tree's code and what ``write`` puts beside it."""
    made = folder / "tree"
    made.mkdir(parents=True)
    for part in ("agentprm_core", "tasks", "flows", "profiles"):
        shutil.copytree(ROOT / part, made / part, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("requirements.lock", "prefect.toml"):
        shutil.copy(ROOT / name, made)
    (made / ".gitignore").write_text(".scratch/\n.prefect/\nmlflow.db*\nmlruns/\n__pycache__/\n")
    (made / ".dvcignore").write_text("__pycache__/\n.scratch/\n")
    write(made)
    committed(made)
    return made


def hub(folder: Path, write: Callable[[Path], None]) -> Path:
    """A bare clone of :func:`tree`."""
    bare = folder / "hub.git"
    subprocess.run(["git", "clone", "-q", "--bare", str(tree(folder, write)), str(bare)], check=True)
    return bare


class Host:
    """A machine with a clone of its own and one worker."""

    def __init__(self, team: Team, hub: Path, folder: Path, pool: str = CPU_POOL, **more: str) -> None:
        self.folder, self.log, self._pool = folder, folder.with_suffix(".log"), pool
        port = str(free_port())
        self.environment = team.environment(
            GIT_REMOTE=str(hub), AGENTPRM_CHECKOUT=str(folder), PREFECT_WORKER_WEBSERVER_PORT=port,
            PREFECT_HOME=str(folder.with_suffix(".prefect")), OMP_NUM_THREADS="1", **HEARTBEAT, **more,
        )  # fmt: skip
        self.start()

    def start(self) -> None:
        command = ["sh", str(DEPLOY / "worker.sh"), self._pool]
        if self._pool == CAMPAIGN_POOL:
            command.append("8")
        self._worker = launched(command, self.environment, self.log)

    @property
    def lives(self) -> bool:
        return self._worker.poll() is None

    def vanish(self) -> None:
        """All of it ends as on a machine that loses power: no process sees another one end."""
        self.pause()
        self._each(psutil.Process.kill)
        self._worker.wait()

    def pause(self) -> None:
        self._each(psutil.Process.suspend)

    def resume(self) -> None:
        self._each(psutil.Process.resume)

    def _each(self, do: Callable[[psutil.Process], None]) -> None:
        with suppress(psutil.NoSuchProcess):
            worker = psutil.Process(self._worker.pid)
            for one in (worker, *worker.children(recursive=True)):
                with suppress(psutil.NoSuchProcess):
                    do(one)

    def worktree(self, campaign: str, stage: str) -> Path:
        """Where the stage runs here."""
        return self.folder / ".scratch/campaigns" / campaign / stage.replace("@", "-")

    def run(self, *module: str, **more: str) -> subprocess.CompletedProcess[str]:
        """``python -m MODULE …`` in its clone."""
        path = {"PYTHONPATH": str(self.folder)}
        return subprocess.run([sys.executable, "-m", *module], cwd=self.folder, env=self.environment | path | more,
                              capture_output=True, text=True)  # fmt: skip


class Prefect:
    """What the server knows, over HTTP, as somebody with the password."""

    def __init__(self, team: Team) -> None:
        self._api = f"{team.url('prefect')}/api"
        self._auth = "Basic " + base64.b64encode(team.auth.encode()).decode()

    def ask(self, path: str, body: dict) -> Any:
        headers = {"Content-Type": "application/json", "Authorization": self._auth}
        request = urllib.request.Request(self._api + path, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def runs(self, name: str) -> list[dict]:
        """Flow runs of that name, the oldest first."""
        return self.ask("/flow_runs/filter", {"flow_runs": {"name": {"any_": [name]}}, "sort": "START_TIME_ASC"})

    def states(self, name: str) -> list[str]:
        return [run["state_name"] for run in self.runs(name)]

    def lines(self, run: dict) -> list[str]:
        """The run's log."""
        asked = {"logs": {"flow_run_id": {"any_": [run["id"]]}}, "sort": "TIMESTAMP_ASC"}
        return [line["message"] for line in self.ask("/logs/filter", asked)]


class ProcessList:
    """Every command line seen while the block ran."""

    def __init__(self) -> None:
        self.seen: set[str] = set()

    @contextmanager
    def watching(self) -> Iterator[ProcessList]:
        over = threading.Event()

        def watch() -> None:
            while not over.wait(1):
                for process in psutil.process_iter():
                    with suppress(psutil.Error):
                        self.seen.add(" ".join(process.cmdline()))

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            over.set()
            thread.join()


def locked(hub: Path, campaign: str) -> dict:
    """``dvc.lock`` of the campaign's branch: {stage: entry}."""
    return yaml.safe_load(git(hub, "show", f"campaign/{campaign}:dvc.lock"))["stages"]


def md5s(stages: dict, without: Sequence[str] = ()) -> dict[str, str]:
    """{path: md5} of all outs but those whose path begins as one in ``without``."""
    outs = {out["path"]: out["md5"] for stage in stages.values() for out in stage.get("outs", ())}
    return {path: md5 for path, md5 in outs.items() if not path.startswith(tuple(without))}
