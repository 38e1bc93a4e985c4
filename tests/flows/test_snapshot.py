"""A campaign's snapshot: what is in it, what cannot change it, who may write it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from flows import snapshot
from flows.dvc_join import is_fresh, reproduce
from flows.snapshot import SnapshotError, git, opened
from flows.worker_stage import same_packages
from tests.flows.conftest import committed
from tests.flows.test_pipeline_smoke import ROOT


def test_edits_and_new_modules_are_in_it_and_later_edits_are_not(project: Path) -> None:
    (project / "seed.txt").write_text("edited\n")
    (project / "new.py").write_text("1\n")
    (project / "token.txt").write_text("secret\n")
    with opened(project, "one") as taken:
        (project / "seed.txt").write_text("edited again\n")
        assert (taken.root / "seed.txt").read_text() == "edited\n"
        assert (taken.root / "new.py").exists()
        assert not (taken.root / "token.txt").exists()
    assert git(project, "status", "--porcelain").splitlines() == ["M seed.txt", "?? new.py", "?? token.txt"]
    with opened(project, "one") as taken:
        assert (taken.root / "seed.txt").read_text() == "edited\n"


def test_the_worktree_shares_cache_and_lock(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reproduce("seed", lambda line: None)
    with opened(project, "one") as taken:
        assert (taken.root / "data/0.txt").read_text() == "seed\ndata/0.txt"
        monkeypatch.chdir(taken.root)
        assert is_fresh("seed")
        reproduce("grow@1", lambda line: None)
        assert snapshot.commit_lock(taken, "grow@1")
        assert not snapshot.commit_lock(taken, "grow@1")
        stages = yaml.safe_load(git(project, "show", "campaign/one:dvc.lock"))["stages"]
    assert set(stages) == {"seed", "grow@1"}
    assert set(yaml.safe_load((project / "dvc.lock").read_text())["stages"]) == {"seed"}
    assert not (project / "data/1.txt").exists()


def test_two_campaigns_at_once_but_one_writer_each(project: Path) -> None:
    with opened(project, "one") as one, opened(project, "two") as two:
        assert one.root != two.root
        with (
            pytest.raises(SnapshotError, match="campaign one is running already; it has one writer"),
            opened(project, "one"),
        ):
            pass


def test_an_entry_from_elsewhere_is_written_as_dvc_writes_it(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reproduce("seed", lambda line: None)
    reproduce("grow@1", lambda line: None)
    whole = (project / "dvc.lock").read_text()
    entry = snapshot.read_entry(project / "dvc.lock", "grow@1")
    other = project / "other.lock"
    for each in ({"seed": snapshot.read_entry(project / "dvc.lock", "seed")["seed"]}, entry):
        snapshot.write_entry(other, each)
    assert other.read_text() == whole


def test_a_remote_gets_the_branch_and_a_second_writer_is_refused(project: Path, tmp_path_factory) -> None:
    hub = tmp_path_factory.mktemp("hub")
    subprocess.run(["git", "init", "-q", "--bare"], cwd=hub, check=True)
    with opened(project, "one") as taken:
        assert not snapshot.push(taken, "origin")
        git(project, "remote", "add", "origin", str(hub))
        assert snapshot.push(taken, "origin")
        assert git(hub, "rev-parse", "campaign/one") == taken.commit
        tree = git(hub, "rev-parse", "campaign/one^{tree}")
        other = git(hub, "commit-tree", tree, "-p", "campaign/one", "-m", "another writer")
        git(hub, "update-ref", "refs/heads/campaign/one", other)
        snapshot.write_entry(taken.root / "dvc.lock", {"seed": {"cmd": "x"}})
        snapshot.commit_lock(taken, "seed")
        with pytest.raises(SnapshotError, match="origin has commits of campaign/one that are not here: another host"):
            snapshot.push(taken, "origin")


def test_another_campaign_of_a_name_is_made_of_something_else(project: Path) -> None:
    """And a campaign that goes on of what it was made of: its runs on workers are found by that."""
    with opened(project, "one") as taken:
        before = taken.made_of
        snapshot.write_entry(taken.root / "dvc.lock", {"seed": {"cmd": "x"}})
        assert snapshot.commit_lock(taken, "seed") and taken.made_of == before
    (project / "größe.py").write_text("x = 1\n")
    with opened(project, "two") as other:
        assert (other.root / "größe.py").exists() and other.made_of != before


def test_git_is_told_by_the_line_that_says_what_is_wrong(project: Path) -> None:
    (project / ".git/index.lock").touch()
    with pytest.raises(SnapshotError, match=r"git add in .*: fatal: Unable to create '.*index.lock'"):
        git(project, "add", "--all")


def test_git_speaks_english_whatever_the_language_here_is(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    assert git(project, "-c", "alias.language=!echo $LC_ALL", "language") == "C"


@pytest.mark.parametrize("name", ["", "../up", "a b", "x.lock", "a..b", "-f"])
def test_a_name_that_is_no_branch_is_refused(project: Path, name: str) -> None:
    with pytest.raises(SnapshotError, match="letters, digits"), opened(project, name):
        pass


def test_without_a_commit_it_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="no commit: a campaign is a Git branch"), opened(tmp_path, "one"):
        pass


def test_a_worker_of_another_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "requirements.lock").write_text((ROOT / "requirements.lock").read_text())
    same_packages(tmp_path)
    (tmp_path / "requirements.lock").write_text("dvc==1.0.0\nnot-installed==2.0\n")
    with pytest.raises(SnapshotError, match=r"another version \(dvc .* is not 1.0.0\)"):
        same_packages(tmp_path)


def parameters(folder: Path) -> Path:
    """A project with this tree's parameters, and nothing else of it."""
    for name in ("params.yaml", "dvc.yaml"):
        (folder / name).write_bytes((ROOT / name).read_bytes())
    (folder / "profiles").mkdir()
    (folder / "profiles/smoke.yaml").write_bytes((ROOT / "profiles/smoke.yaml").read_bytes())
    (folder / ".gitignore").write_text(".scratch/\n")
    committed(folder)
    return folder


def test_profiles_are_applied_in_the_snapshot_alone(tmp_path: Path) -> None:
    folder = parameters(tmp_path)
    before = (folder / "params.yaml").read_text()
    with opened(folder, "one", ["smoke", "seed=7"]) as taken:
        params = yaml.safe_load((taken.root / "params.yaml").read_text())
        assert (params["seed"], params["compute"]["slots"]) == (7, 64)
    assert (folder / "params.yaml").read_text() == before
    with opened(folder, "one", ["smoke", "seed=7"]):
        pass
    with pytest.raises(SnapshotError, match="started with other parameters"), opened(folder, "one", ["seed=8"]):
        pass


def test_parameters_that_are_not_allowed_leave_no_campaign(tmp_path: Path) -> None:
    folder = parameters(tmp_path)
    with pytest.raises(Exception, match=r"compute\.slots"), opened(folder, "one", ["compute.slots=-1"]):
        pass
    assert not snapshot.exists(folder, "campaign/one")
    with opened(folder, "one", ["seed=2"]):
        pass
