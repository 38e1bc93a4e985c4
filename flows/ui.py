"""``make ui``: a Prefect server, a process worker and MLflow on this machine, up together and down together.

Where ``MLFLOW_TRACKING_URI`` names a server, that is MLflow, and none is started here. Everything Prefect remembers
lies under ``.prefect`` in the checkout, with the logs of the three. Each of them runs on a
leash (:mod:`flows.leash`), so that Ctrl-C, or the death of this process, leaves nothing behind.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from urllib.error import URLError

from agentprm_core.arguments import at_least, port
from flows.checkout import CHECKOUT
from flows.leash import leashed
from flows.provision import CPU_POOL
from tasks.frame.tracking import MLFLOW_TRAINING, is_remote, tracking_uri

HOST = "127.0.0.1"
START_SECONDS = 300
"""How long a server may take until it answers. The first start also makes a database, and the machine may be busy."""


class NotStarted(RuntimeError):
    """One of the three did not come up, or ended by itself. Says which and where its log is."""


def server_environment(home: Path, prefect_port: int, mlflow_port: int) -> dict[str, str]:
    """The environment of the three: this checkout's Prefect, no reports to anybody, this interpreter's ``python``.
    MLflow finds its database here, where a password in its address shows in no list of processes."""
    store = {} if is_remote() else {"MLFLOW_BACKEND_STORE_URI": tracking_uri()}
    return {
        **store,
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        "PREFECT_HOME": str(home),
        CHECKOUT: str(home.parent),
        "PREFECT_API_URL": f"http://{HOST}:{prefect_port}/api",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "GX_ANALYTICS_ENABLED": "false",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # seven processes for features that training does not use
        "MLFLOW_UI_URL": tracking_uri() if is_remote() else f"http://{HOST}:{mlflow_port}",
    }


def require_free(port: int, variable: str) -> None:
    """Raises NotStarted naming ``variable`` when something else listens on ``port``."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise NotStarted(
                f"port {port} is taken ({error.strerror}); choose another: make ui {variable}=…"
            ) from error


def wait_until_up(name: str, url: str, process: subprocess.Popen[str], log: Path) -> None:
    """Return once ``url`` answers. Raises NotStarted when ``process`` ended first or START_SECONDS have passed."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise NotStarted(f"{name} ended with status {process.returncode}; see {log}")
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (URLError, OSError):
            time.sleep(0.3)
    raise NotStarted(f"{name} did not answer on {url} within {START_SECONDS} s; see {log}")


def serve(home: Path, prefect_port: int, mlflow_port: int, gpus: int | None) -> None:
    """Start the three, register the deployments, and wait until one of them ends (an error) or a signal comes."""
    require_free(prefect_port, "PREFECT_PORT")
    if not is_remote():
        require_free(mlflow_port, "MLFLOW_PORT")
    home.mkdir(exist_ok=True)
    env = server_environment(home, prefect_port, mlflow_port)
    running: dict[str, subprocess.Popen[str]] = {}

    with ExitStack() as stack:

        def start(name: str, *command: str) -> Path:
            log = home / f"{name}.log"
            stdout = stack.enter_context(log.open("w"))
            running[name] = stack.enter_context(leashed([sys.executable, "-m", *command], env=env, stdout=stdout))
            return log

        server_log = start("prefect-server", "prefect", "server", "start", "--host", HOST, "--port", str(prefect_port))
        mlflow_log = None if is_remote() else start("mlflow", *mlflow_command(mlflow_port))
        wait_until_up("Prefect", f"http://{HOST}:{prefect_port}/api/health", running["prefect-server"], server_log)
        limit = () if gpus is None else ("--gpus", str(gpus))
        provision_log = start("provision", "flows.provision", *limit)
        if (status := running.pop("provision").wait()) != 0:
            raise NotStarted(f"registering the deployments failed with status {status}; see {provision_log}")
        start("prefect-worker", "prefect", "worker", "start", "--pool", CPU_POOL, "--name", "local", "--limit", "1")
        if mlflow_log is not None:
            wait_until_up("MLflow", f"http://{HOST}:{mlflow_port}/health", running["mlflow"], mlflow_log)
        print(f"Prefect  http://{HOST}:{prefect_port}")
        elsewhere = " (MLFLOW_TRACKING_URI: none is started here)" if is_remote() else ""
        print(f"MLflow   {env['MLFLOW_UI_URL'].rstrip('/')}/#/experiments?{MLFLOW_TRAINING}{elsewhere}")
        print(f"Logs are in {home}. Ctrl-C ends all of it.", flush=True)
        _wait_for_an_end(running, home)


def mlflow_command(port: int) -> Sequence[str]:
    """MLflow's server over the database that the stages write to, one process, for this machine only.

    Files stay in ``mlruns``, where a stage without a server puts them too. A server that hands them through itself
    would write an address into an empty database that stages without a server cannot write to.
    """
    address = ("--host", HOST, "--port", str(port), "--workers", "1")
    return ("mlflow", "server", *address, "--no-serve-artifacts", "--default-artifact-root", "mlruns")


def _wait_for_an_end(running: Mapping[str, subprocess.Popen[str]], home: Path) -> None:
    while True:
        for name, process in running.items():
            if process.poll() is not None:
                raise NotStarted(f"{name} ended with status {process.returncode}; see {home / (name + '.log')}")
        time.sleep(0.5)


def main() -> int:
    parser = argparse.ArgumentParser(description="Prefect server, process worker and MLflow on localhost.")
    parser.add_argument("--prefect-port", type=port, default=4200)
    parser.add_argument("--mlflow-port", type=port, default=5000)
    parser.add_argument("--gpus", type=at_least(0), help="GPUs that the GPU work pool shares out")
    arguments = parser.parse_args()
    for end in (signal.SIGINT, signal.SIGTERM):  # set both: a shell starts background jobs with SIGINT ignored
        signal.signal(end, signal.default_int_handler)
    try:
        serve(Path.cwd() / ".prefect", arguments.prefect_port, arguments.mlflow_port, arguments.gpus)
    except NotStarted as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("ended")
    return 0


if __name__ == "__main__":
    sys.exit(main())
