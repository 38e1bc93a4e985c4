"""``deploy/``: what one reads in compose.yaml holds for every service, and no password comes with it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.flows.composed import COMPOSE, DEPLOY, Missing, asked_for, services, variables

GIVEN = {name: value or "x" * 48 for name, value in variables(DEPLOY / ".env.example").items()}


def test_all_variables_are_in_the_example_and_no_password_has_a_default() -> None:
    example = variables(DEPLOY / ".env.example")
    for name, how in asked_for().items():
        assert how <= {"?", "-"}, name
        assert name in example or how == {"-"}, f"{name} is not in .env.example"
    secret = {name for name in example if re.search("PASSWORD|KEY", name)}
    assert secret == {name for name, value in example.items() if not value}
    assert all(asked_for()[name] == {"?"} for name in secret)


def test_nothing_starts_without_passwords() -> None:
    services(GIVEN)
    for name in ("POSTGRES_PASSWORD", "PREFECT_PASSWORD", "MLFLOW_PASSWORD", "MLFLOW_SESSION_KEY", "S3_SECRET_KEY"):
        with pytest.raises(Missing, match=name):
            services(GIVEN | {name: ""})


def test_every_server_and_worker_has_a_health_check_and_comes_back() -> None:
    for name, service in services(GIVEN).items():
        if service["restart"] == "no":
            continue
        assert service["restart"] == "unless-stopped", name
        assert service["healthcheck"]["test"][0] == "CMD", name
        assert service.get("image"), name


def test_ports_are_on_localhost_unless_asked() -> None:
    ports = {name: service.get("ports", []) for name, service in services(GIVEN | {"BIND": ""}).items()}
    assert {port for listed in ports.values() for port in listed} == {
        "127.0.0.1:8333:8333", "127.0.0.1:4200:4200", "127.0.0.1:5000:5000"}  # fmt: skip
    assert ports["postgres"] == []
    assert services(GIVEN | {"BIND": "10.0.0.5"})["mlflow"]["ports"] == ["10.0.0.5:5000:5000"]


def test_passwords_are_in_variables_and_in_no_command() -> None:
    secrets = {name: f"secret-{name}" for name, value in variables(DEPLOY / ".env.example").items() if not value}
    for name, service in services(GIVEN | secrets).items():
        said = yaml.safe_dump([service.get("command"), service.get("healthcheck"), service.get("build")])
        assert "secret-" not in said, name


def test_images_are_of_a_version_and_files_are_there() -> None:
    for name, service in services(GIVEN).items():
        assert "build" in service or re.search(r":\d", service["image"]), name
        for word in [*service.get("command", []), *[v.partition(":")[0] for v in service.get("volumes", [])]]:
            if word.startswith(("deploy/", "/app/deploy/", "./")):
                assert (DEPLOY / Path(word).name).exists(), word
    whole = yaml.safe_load(COMPOSE.read_text())
    named = {v.partition(":")[0] for s in services(GIVEN).values() for v in s.get("volumes", [])}
    assert {name for name in named if "/" not in name} == whole["volumes"].keys()


def test_the_script_makes_new_passwords_once_and_for_this_user_only(tmp_path: Path) -> None:
    for name in ("passwords", ".env.example"):
        shutil.copy(DEPLOY / name, tmp_path)
    command = ["sh", str(tmp_path / "passwords")]
    assert subprocess.run(command, capture_output=True).returncode == 0
    made = variables(tmp_path / ".env")
    new = [made[name] for name, value in variables(DEPLOY / ".env.example").items() if not value]
    assert len(set(new)) == len(new) and all(re.fullmatch("[0-9a-f]{48}", one) for one in new)
    assert (tmp_path / ".env").stat().st_mode & 0o777 == 0o600
    again = subprocess.run(command, capture_output=True, text=True)
    assert again.returncode == 1 and "is there already" in again.stderr
    assert variables(tmp_path / ".env") == made
    services(made)


def test_git_takes_no_passwords() -> None:
    done = subprocess.run(["git", "check-ignore", "-q", "deploy/.env"], cwd=DEPLOY.parent)
    assert done.returncode == 0
