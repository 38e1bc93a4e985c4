"""The servers of a team without containers: Postgres, an S3 store, Prefect and MLflow over both, all with passwords.

Commands and environment are those of ``deploy/compose.yaml``. Postgres is Debian's, the rest comes from the lock file;
the S3 store is a double (:mod:`tests.flows.s3_double`). Passwords are new each time.
"""

from __future__ import annotations

import base64
import json
import os
import pwd
import secrets
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

import psutil
import pytest

from tests.flows.composed import DEPLOY, services, variables
from tests.flows.s3_double import FULL, KEYS
from tests.waiting import HOST, free_port, until

ROOT = Path(__file__).parents[2]
START_SECONDS = 600
"""The first start of Prefect and MLflow makes their tables; the machine may be busy."""
BUCKETS = ("dvc", "mlflow")
UNWANTED = ("PREFECT_", "MLFLOW_", "AWS_", "PG", "AGENTPRM_")
"""Variables of whoever runs the tests, which would lead elsewhere."""
HEARTBEAT = {"PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30"}
"""The fastest that Prefect allows: a lost worker is noticed after two minutes."""


def postgres_programs() -> Path:
    """The folder with ``initdb`` and ``pg_ctl``. Skips the test, saying so, where Debian's Postgres is absent."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        pytest.skip("no Postgres in /usr/lib/postgresql: apt-get install postgresql")
    return found[-1].parent


def started(ready: Callable[[], bool], said: Callable[[], str]) -> None:
    """Wait for a server."""
    until(ready, START_SECONDS, said)


def answers(url: str, auth: str | None = None) -> bool:
    request = urllib.request.Request(url)
    if auth is not None:
        request.add_header("Authorization", "Basic " + base64.b64encode(auth.encode()).decode())
    try:
        with urllib.request.urlopen(request, timeout=5):
            return True
    except urllib.error.HTTPError as error:
        return error.code == 403 and auth is None  # a store that wants a signature is up
    except OSError:
        return False


def launched(command: list[str], env: Mapping[str, str], log: Path, folder: Path = ROOT) -> subprocess.Popen:
    with log.open("a") as stream:
        return subprocess.Popen(command, stdout=stream, stderr=stream, env=env, cwd=folder)


def end(process: subprocess.Popen) -> None:
    """It and all that it started, at once."""
    with suppress(psutil.NoSuchProcess):
        for one in [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]:
            with suppress(psutil.NoSuchProcess):
                one.kill()
    process.wait()


class Postgres:
    """A cluster of its own, with the databases ``prefect``, ``mlflow`` and ``mlflow_auth``. Not run as root."""

    USER = "agentprm"

    def __init__(self) -> None:
        self._bin, self.port = postgres_programs(), free_port()
        self.password = secrets.token_urlsafe(24)
        self._owner = "postgres" if os.getuid() == 0 else None
        self.folder = Path(tempfile.mkdtemp(prefix="agentprm-postgres-"))
        if self._owner is not None:
            shutil.chown(self.folder, self._owner)
        given = self.folder / "password"
        given.touch(mode=0o600)
        given.write_text(self.password)
        if self._owner is not None:
            shutil.chown(given, self._owner)
        self._run("initdb", "-D", self._data, "-U", self.USER, "-A", "scram-sha-256", f"--pwfile={given}", "-E", "UTF8")
        given.unlink()
        self.start()
        for name in ("prefect", "mlflow", "mlflow_auth"):
            self.run("createdb", name)

    @property
    def _data(self) -> str:
        return str(self.folder / "data")

    def _run(self, program: str, *arguments: str, **environment: str) -> str:
        identity = {} if self._owner is None else {"user": self._owner, "group": pwd.getpwnam(self._owner).pw_gid,
                                                   "extra_groups": []}  # fmt: skip
        done = subprocess.run([self._bin / program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, cwd=self.folder, env={**os.environ, **environment}, **identity)  # fmt: skip
        assert done.returncode == 0, f"{program}: {done.stdout}"
        return done.stdout

    def variables(self) -> dict[str, str]:
        """What libpq's programs and psycopg read."""
        return {"PGHOST": HOST, "PGPORT": str(self.port), "PGUSER": self.USER, "PGPASSWORD": self.password}

    def run(self, program: str, *arguments: str) -> str:
        """A program of Postgres, as a client of this cluster."""
        return self._run(program, *arguments, **self.variables())

    def start(self) -> None:
        """Returns once it takes connections."""
        options = f"-p {self.port} -h {HOST} -k {self.folder} -c fsync=off"
        log = str(self.folder / "log")
        self._run("pg_ctl", "-D", self._data, "-l", log, "-o", options, "-w", "start")

    def stop(self) -> None:
        self._run("pg_ctl", "-D", self._data, "-m", "immediate", "-w", "stop")

    def close(self) -> None:
        with suppress(AssertionError):
            self.stop()
        shutil.rmtree(self.folder)


class Store:
    """An S3 store with the buckets ``dvc`` and ``mlflow``, and one key that may use them."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.port, self.key = folder, free_port(), dict[str, str]()
        folder.mkdir(parents=True, exist_ok=True)
        self.url = f"http://{HOST}:{self.port}"
        command = [sys.executable, "-m", "tests.flows.s3_double", str(self.port), str(folder)]
        log = folder / "s3.log"
        self._process = launched(command, clean(), log)
        started(lambda: (folder / KEYS).exists() and answers(self.url), log.read_text)
        self.key = json.loads((folder / KEYS).read_text())
        (folder / KEYS).unlink()
        for bucket in BUCKETS:
            self.client().create_bucket(Bucket=bucket)

    def close(self) -> None:
        end(self._process)

    def variables(self) -> dict[str, str]:
        """What DVC, MLflow and boto3 read."""
        return {**self.key, "AWS_DEFAULT_REGION": "us-east-1", "AWS_ENDPOINT_URL": self.url}

    @cache  # noqa: B019  (as long as the tests' store)
    def client(self):
        import boto3

        key, secret = self.key["AWS_ACCESS_KEY_ID"], self.key["AWS_SECRET_ACCESS_KEY"]
        return boto3.Session(key, secret, region_name="us-east-1").client("s3", endpoint_url=self.url)

    def objects(self, prefix: str = "", bucket: str = "dvc") -> dict[str, bytes]:
        """{key: content} of a bucket."""
        client = self.client()
        return {name: client.get_object(Bucket=bucket, Key=name)["Body"].read() for name in self.names(prefix, bucket)}

    def names(self, prefix: str = "", bucket: str = "dvc") -> list[str]:
        pages = self.client().get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return [one["Key"] for page in pages for one in page.get("Contents", ())]

    def fill(self, full: bool = True) -> None:
        """The store has reached its quota, or has room again."""
        (self._folder / FULL).touch() if full else (self._folder / FULL).unlink(missing_ok=True)


class Team:
    """The servers, and what a host of the team has in its environment."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._running = folder, dict[str, subprocess.Popen]()
        self.ports = {name: free_port() for name in ("prefect", "mlflow")}
        self.postgres = Postgres()
        self._given = variables(DEPLOY / ".env.example")
        self._given |= {name: secrets.token_hex(24) for name, value in self._given.items() if not value}
        self._given["POSTGRES_PASSWORD"] = self.postgres.password

    def start(self) -> Team:
        try:
            self.store = Store(self.folder)
            self._given["TEAM_USER"], self._given["S3_SECRET_KEY"] = self.store.key.values()
            self.launch_prefect()
            self.launch_mlflow()
            self.await_prefect()
            self.await_mlflow()
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        for name in list(self._running):
            self.stop(name)
        if hasattr(self, "store"):
            self.store.close()
        self.postgres.close()

    def stop(self, name: str) -> None:
        """``prefect`` or ``mlflow``."""
        end(self._running.pop(name))

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def url(self, name: str) -> str:
        return f"http://{HOST}:{self.ports[name]}"

    def environment(self, **more: str) -> dict[str, str]:
        """Of a host: what a worker's container has."""
        _, environment = self.service("worker-cpu")
        return clean() | environment | more

    @property
    def user(self) -> str:
        return self._given["TEAM_USER"]

    @property
    def auth(self) -> str:
        return f"{self.user}:{self._given['PREFECT_PASSWORD']}"

    def secrets(self) -> list[str]:
        """None of these may be seen anywhere."""
        return [value for name, value in self._given.items() if "PASSWORD" in name or "KEY" in name]

    def move(self, postgres: Postgres) -> None:
        """Both servers, which are stopped, start again with the databases of another Postgres."""
        self.postgres.close()
        self.postgres, self._given["POSTGRES_PASSWORD"] = postgres, postgres.password
        self.launch_prefect()
        self.launch_mlflow()
        self.await_prefect()
        self.await_mlflow()

    def launch_prefect(self) -> None:
        """As in a container; what the image sets and where the others are is set here."""
        self._launch("prefect", PREFECT_SERVER_DATABASE_PORT=str(self.postgres.port), PREFECT_HOME=str(self.folder),
                     PREFECT_SERVER_ANALYTICS_ENABLED="false")  # fmt: skip

    def await_prefect(self) -> None:
        url = f"{self.url('prefect')}/api/admin/version"
        started(lambda: answers(url, self.auth), lambda: self.log("prefect"))

    def launch_mlflow(self) -> None:
        self._launch("mlflow", PGPORT=str(self.postgres.port), MLFLOW_DISABLE_TELEMETRY="true",
                     MLFLOW_AUTH_CONFIG_PATH=str(DEPLOY / "mlflow-auth.ini"))  # fmt: skip

    def await_mlflow(self) -> None:
        started(lambda: answers(f"{self.url('mlflow')}/health"), lambda: self.log("mlflow"))

    def service(self, name: str) -> tuple[list[str], dict[str, str]]:
        """Command and environment of a service of compose.yaml, with the addresses of this machine."""
        service = services(self._given)[name]
        port = str(self.ports.get(name))
        known = {"0.0.0.0": HOST, "4200": port, "--host=0.0.0.0": f"--host={HOST}", "--port=5000": f"--port={port}"}
        there = {
            "postgres": HOST,
            "http://s3:8333": self.store.url,
            "http://prefect:4200/api": f"{self.url('prefect')}/api",
            "http://mlflow:5000": self.url("mlflow"),
        }
        command = [known.get(word, word) for word in service["command"]]
        return command, {key: there.get(value, value) for key, value in service["environment"].items()}

    def _launch(self, name: str, **more: str) -> None:
        command, environment = self.service(name)
        log = self.folder / f"{name}.log"
        self._running[name] = launched([sys.executable, "-m", *command], clean() | environment | more, log)


def clean() -> dict[str, str]:
    """This environment without what leads to anybody's servers."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(UNWANTED)}
    path = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", "")])
    return kept | {"PATH": path, "DO_NOT_TRACK": "1", "GX_ANALYTICS_ENABLED": "false"}
