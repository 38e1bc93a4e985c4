"""Housekeeping: what a champion, a named campaign or this checkout needs stays; the rest goes when told to."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flows import gc, snapshot
from flows.dvc_join import reproduce
from flows.snapshot import git, held, opened


def cached(project: Path) -> set[str]:
    files = (project / ".dvc/cache/files/md5").rglob("*")
    return {path.read_text() for path in files if path.is_file()}


def made(project: Path, seed: str) -> str:
    """The out of the stage ``seed`` for this seed, which is in the cache then."""
    (project / "seed.txt").write_text(f"{seed}\n")
    reproduce("seed", lambda line: None)
    return f"{seed}\ndata/0.txt"


def aged(project: Path, days: float = 2.0) -> None:
    then = time.time() - 86400 * days
    for path in (project / ".dvc/cache").rglob("*"):
        os.utime(path, (then, then))


@pytest.fixture
def alone(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return project


def test_what_nothing_names_goes_when_told_and_the_rest_stays(alone: Path, capsys) -> None:
    old, of_campaign = made(alone, "old"), made(alone, "campaign")
    with opened(alone, "kept"):
        pass
    now = made(alone, "now")
    aged(alone)
    assert gc.main([]) == 0
    shown = capsys.readouterr().out
    assert "may go: 1 objects" in shown and "needed by campaign/kept" in shown and "Nothing was deleted" in shown
    assert cached(alone) == {old, of_campaign, now}
    assert gc.main(["--delete"]) == 0
    assert cached(alone) == {of_campaign, now}
    runs = [path.read_text() for path in (alone / ".dvc/cache/runs").rglob("*") if path.is_file()]
    assert len(runs) == 2, "the run cache names nothing that is gone"
    git(alone, "worktree", "remove", "--force", str(alone / ".scratch/campaigns/kept/campaign"))
    git(alone, "branch", "-D", "campaign/kept")
    assert gc.main(["--delete"]) == 0
    assert cached(alone) == {now}
    assert not (alone / ".scratch/campaigns/kept").exists()


def test_what_is_younger_than_a_day_stays(alone: Path) -> None:
    texts = {made(alone, "a"), made(alone, "b")}
    assert gc.main(["--delete"]) == 0
    assert cached(alone) == texts
    assert gc.main(["--delete", "--days", "0"]) == 0
    assert len(cached(alone)) == 1


def test_a_folder_that_a_champion_needs_stays_with_its_files(alone: Path, monkeypatch, capsys) -> None:
    weights = alone / "weights"
    weights.mkdir()
    (weights / "model.safetensors").write_text("weights")
    subprocess.run([sys.executable, "-m", "dvc", "add", "-q", "weights"], check=True)
    (md5,) = gc._MD5.findall((alone / "weights.dvc").read_text())
    (alone / "weights.dvc").unlink()
    shutil.rmtree(weights)
    made(alone, "now")
    aged(alone)
    monkeypatch.setattr(gc, "champions", lambda: {md5})
    assert gc.main(["--delete"]) == 0
    assert "weights" in cached(alone) and len(cached(alone)) == 3
    assert " B  needed by champions" in capsys.readouterr().out
    monkeypatch.setattr(gc, "champions", set)
    assert gc.main(["--delete"]) == 0
    assert len(cached(alone)) == 1


def test_nothing_goes_while_a_campaign_runs_or_mlflow_is_away(alone: Path, monkeypatch, capsys) -> None:
    made(alone, "old")
    made(alone, "now")
    aged(alone)
    pid = alone / snapshot.CAMPAIGNS / "one/campaign.pid"
    pid.parent.mkdir(parents=True)
    with held(pid, ""):
        assert gc.main(["--delete"]) == 1
    assert "campaign one is running here" in capsys.readouterr().err
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    assert gc.main(["--delete"]) == 1
    assert "MLflow cannot say which weights its champions need" in capsys.readouterr().err
    assert len(cached(alone)) == 2


def test_the_remote_too_and_campaigns_of_other_hosts_stay(alone: Path, tmp_path_factory, capsys) -> None:
    hosts = tmp_path_factory.mktemp("hosts")
    git(hosts, "clone", "-q", "--bare", str(alone), str(hosts / "hub"))
    git(alone, "remote", "add", "origin", str(hosts / "hub"))
    dvc = [sys.executable, "-m", "dvc"]
    add = [*dvc, "remote", "add", "-q", "--default", "--local", "store", str(hosts / "store")]
    subprocess.run(add, check=True)
    for seed in ("old", "theirs", "now"):
        made(alone, seed)
        subprocess.run([*dvc, "push", "-q", "--run-cache"], check=True)
        if seed == "theirs":
            with opened(alone, "theirs") as taken:
                snapshot.push(taken, "origin")
    git(alone, "worktree", "remove", "--force", str(alone / ".scratch/campaigns/theirs/campaign"))
    git(alone, "branch", "-D", "campaign/theirs")  # another host has it
    git(alone, "update-ref", "-d", "refs/remotes/origin/campaign/theirs")
    assert gc.main(["--remote", "--delete", "--days", "0"]) == 0
    stored = {path.read_text() for path in (hosts / "store/files/md5").rglob("*") if path.is_file()}
    assert stored == {"theirs\ndata/0.txt", "now\ndata/0.txt"} == cached(alone)
    shutil.rmtree(hosts / "hub")
    assert gc.main(["--remote", "--delete"]) == 1
    assert "git fetch" in capsys.readouterr().err


def test_a_remote_that_is_not_there_is_one_line(alone: Path, capsys) -> None:
    assert gc.main(["--remote"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("--remote: DVC has no default remote here") and said.count("\n") == 1


def test_the_champions_of_mlflow_their_challengers_and_those_before(alone: Path, monkeypatch) -> None:
    import mlflow

    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{alone / 'mlflow.db'}")
    mlflow.set_tracking_uri(f"sqlite:///{alone / 'mlflow.db'}")
    client = mlflow.MlflowClient()
    client.create_registered_model("agentprm-policy-w-24-1f3c9a2b")
    for number in range(1, 5):
        tags = {"dvc_md5": f"{number}.dir", **({"champion_before": "1"} if number == 3 else {})}
        client.create_model_version("agentprm-policy-w-24-1f3c9a2b", source=f"dvc:{number}", tags=tags)
    for alias, number in (("champion", "3"), ("challenger", "4")):
        client.set_registered_model_alias("agentprm-policy-w-24-1f3c9a2b", alias, number)
    assert gc.champions() == {"1.dir", "3.dir", "4.dir"}
