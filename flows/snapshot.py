"""A campaign is a snapshot: parameters, code and ``dvc.lock`` on a Git branch ``campaign/NAME``, in its own worktree.

Stages run in the worktree, so an edit, a pull or an experiment in the checkout changes nothing of a campaign that runs.
The worktree uses the checkout's DVC cache and remotes. What a stage wrote into ``dvc.lock`` is committed to the branch
by the campaign's flow, and by nobody else.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml
from dvc.config import Config
from dvc.repo import Repo

from agentprm_core.datasets import atomic_write
from flows.mend import LOCK, mend
from tasks.frame.home import HOME

CAMPAIGNS = Path(".scratch/campaigns")
"""In the checkout: a folder a campaign, with the worktree of its flow and one of each stage that a worker runs."""
_REJECTED = "[rejected]"
"""What Git says of a push where the branch there has moved on."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_AUTHOR = ("-c", "user.name=agentprm", "-c", "user.email=agentprm@localhost", "-c", "commit.gpgsign=false")


class SnapshotError(RuntimeError):
    """No snapshot can be made or used. Says of which campaign or folder, and what to do."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A campaign's branch and the worktree of its flow."""

    campaign: str
    root: Path
    """The worktree."""
    checkout: Path
    """Whose worktree it is."""

    @property
    def branch(self) -> str:
        return branch_of(self.campaign)

    @property
    def commit(self) -> str:
        return git(self.root, "rev-parse", "HEAD")

    @property
    def made_of(self) -> str:
        """A digest of its code and parameters: the same however far it is, another for another campaign of its name."""
        files = git(self.root, "ls-tree", "-r", "HEAD").splitlines()
        return sha256("\n".join(line for line in files if not line.endswith(f"\t{LOCK}")).encode()).hexdigest()[:12]


def branch_of(campaign: str) -> str:
    """Raises SnapshotError where ``campaign`` cannot be part of a branch's name."""
    if not _NAME.fullmatch(campaign) or campaign.endswith((".", ".lock")) or ".." in campaign:
        raise SnapshotError(f"campaign {campaign!r}: letters, digits, dot, dash and underscore only, a letter first")
    return f"campaign/{campaign}"


def git(root: Path, *arguments: str, index: Path | None = None) -> str:
    """What ``git`` prints in ``root``. Raises SnapshotError with the line that says what is wrong."""
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}  # what it says is read, and said in English
    environment |= {"GIT_INDEX_FILE": str(index)} if index else {}
    command = ["git", *_AUTHOR, "-C", str(root), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or ["nothing said"]
        wrong = [line for line in said if line.startswith(("fatal:", "error:")) or _REJECTED in line] or said[-1:]
        raise SnapshotError(f"git {arguments[0]} in {root}: {wrong[0].strip()}")
    return done.stdout.strip()


def exists(root: Path, revision: str) -> bool:
    """Whether ``root``'s repository has the branch or commit."""
    try:
        git(root, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    except SnapshotError:
        return False
    return True


@contextmanager
def opened(checkout: Path, campaign: str, words: Sequence[str] = ()) -> Iterator[Snapshot]:
    """The campaign's snapshot: the one that is there, or a new one of ``checkout`` with ``words`` applied.

    ``words`` are profiles and ``KEY=VALUE``, as ``python -m tasks.frame.profile`` takes them. While the block runs
    nobody else on this machine can open the campaign.

    Raises:
        SnapshotError: no Git repository with a commit; the campaign is open elsewhere, or was started with other words.
        tasks.frame.params.ParamsError: ``words`` that params.yaml may not hold.
    """
    branch = branch_of(campaign)
    root = checkout / CAMPAIGNS / campaign / "campaign"
    root.parent.mkdir(parents=True, exist_ok=True)
    with held(root.parent / "campaign.pid", f"campaign {campaign} is running already; it has one writer"):
        if not exists(checkout, f"refs/heads/{branch}"):
            _take(checkout, root, branch, words)
        elif words and _title(words) not in git(checkout, "log", "--format=%s", branch).splitlines():
            raise SnapshotError(f"campaign {campaign}: it was started with other parameters; give it another name")
        if not (root / ".git").exists():
            git(checkout, "worktree", "add", "--force", str(root), branch)
        join_data(checkout, root)
        yield Snapshot(campaign, root, checkout)


@contextmanager
def held(path: Path, otherwise: str, *, wait: bool = False) -> Iterator[int]:
    """The file ``path``, locked until the block and every process that got its number have ended.

    Raises SnapshotError(``otherwise``) where somebody else has it, unless ``wait``.
    """
    with path.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SnapshotError(otherwise) from None
        yield lock.fileno()


def worktree(checkout: Path, root: Path, commit: str) -> None:
    """A worktree of ``commit`` at ``root``, beside no branch; what lies there and is not Git's stays."""
    if (root / ".git").exists():
        git(root, "checkout", "--quiet", "--detach", "--force", commit)
    else:
        git(checkout, "worktree", "add", "--quiet", "--force", "--detach", str(root), commit)
    join_data(checkout, root)


def remove(checkout: Path, root: Path) -> None:
    """The worktree goes; the branch stays."""
    shutil.rmtree(root, ignore_errors=True)
    git(checkout, "worktree", "prune")


def join_data(checkout: Path, root: Path) -> None:
    """Let the worktree use the checkout's DVC cache and remotes, and lay out what the cache has of ``dvc.lock``."""
    with Repo(str(checkout)) as repo:
        remotes, core = repo.config["remote"], repo.config["core"]
        cache = {"dir": repo.cache.local_cache_dir, **({"type": t} if (t := repo.config["cache"].get("type")) else {})}
    local = root / ".dvc" / "config.local"
    local.parent.mkdir(exist_ok=True)
    with Config(str(root / ".dvc"), validate=False).edit("local") as edited:
        config: Any = edited
        config["cache"] = cache
        config["remote"] = {name: {key: value for key, value in remote.items()} for name, remote in remotes.items()}
        config["core"] = {"remote": core["remote"]} if "remote" in core else {}
    local.chmod(0o600)
    mend(root)
    if (root / LOCK).exists():
        with Repo(str(root)) as repo:
            repo.checkout(allow_missing=True)


def commit_lock(snapshot: Snapshot, what: str, entry: Mapping | None = None) -> bool:
    """Commit ``dvc.lock`` to the branch, with ``entry`` ({stage: what DVC wrote of it}) put in first. Returns whether
    anything was new."""
    if entry:
        write_entry(snapshot.root / LOCK, entry)
    if not (snapshot.root / LOCK).exists():
        return False
    git(snapshot.root, "add", "--force", LOCK)
    if not git(snapshot.root, "status", "--porcelain", "--untracked-files=no", "--", LOCK):
        return False
    git(snapshot.root, "commit", "--quiet", "--no-verify", "--message", f"{snapshot.campaign}: {what}", "--", LOCK)
    return True


def push(snapshot: Snapshot, remote: str) -> bool:
    """Push the branch to the Git remote named ``remote``; False where the checkout has none of that name.

    Raises SnapshotError where the remote's branch holds what this one does not: somebody else wrote it.
    """
    if remote not in git(snapshot.root, "remote").split():
        return False
    try:
        git(snapshot.root, "push", "--quiet", "--no-verify", remote, f"HEAD:refs/heads/{snapshot.branch}")
    except SnapshotError as error:
        if _REJECTED not in str(error):
            raise
        raise SnapshotError(
            f"campaign {snapshot.campaign}: {remote} has commits of {snapshot.branch} that are not here: "
            "another host writes it. Let it go on there, or give this one another name"
        ) from None
    return True


def read_entry(lock: Path, stage: str) -> dict:
    """What ``dvc.lock`` says of ``stage``, as {stage: …}."""
    return {stage: yaml.safe_load(lock.read_text())["stages"][stage]}


def write_entry(lock: Path, entry: Mapping) -> None:
    """Put ``entry`` into ``dvc.lock``, in DVC's form."""
    from dvc.utils.serialize import dump_yaml

    text = yaml.safe_load(lock.read_text()) if lock.exists() else {"schema": "2.0", "stages": {}}
    text["stages"].update(entry)
    with atomic_write(lock) as aside:
        dump_yaml(str(aside), text)


def _take(checkout: Path, root: Path, branch: str, words: Sequence[str]) -> None:
    """The branch is made last: one that is there is whole."""
    commit = _commit_of_checkout(checkout, branch)
    remove(checkout, root)
    git(checkout, "worktree", "add", "--quiet", "--detach", str(root), commit)
    if words:
        from tasks.frame.profile import apply  # torch, which takes seconds

        try:
            apply(words, root)
        except BaseException:
            remove(checkout, root)
            raise
        git(root, "commit", "--quiet", "--no-verify", "--allow-empty", "--message", _title(words), "--", "params.yaml")
    git(root, "checkout", "--quiet", "-b", branch)


def _commit_of_checkout(checkout: Path, branch: str) -> str:
    """The checkout as it is: what Git tracks, with edits; new modules and profiles; ``dvc.lock``. It is not touched."""
    if not exists(checkout, "HEAD"):
        raise SnapshotError(f"{checkout}: no commit: a campaign is a Git branch. git init && git commit, or dvc repro")
    with tempfile.TemporaryDirectory() as folder:
        index = Path(folder) / "index"
        git(checkout, "read-tree", "HEAD", index=index)
        git(checkout, "add", "--update", index=index)
        new = git(
            checkout, "ls-files", "-z", "--others", "--exclude-standard", "--", "*.py", "profiles/*.yaml", index=index
        )
        lock = ["dvc.lock"] if (checkout / LOCK).exists() else []
        if added := [*filter(None, new.split("\0")), *lock]:
            git(checkout, "add", "--force", "--", *added, index=index)
        tree = git(checkout, "write-tree", index=index)
    return git(checkout, "commit-tree", tree, "-p", "HEAD", "-m", f"{branch}: code, parameters and data at its start")


def _title(words: Sequence[str]) -> str:
    return f"Parameters: {' '.join(words)}"


def stage_variables(checkout: Path, root: Path, campaign: str) -> dict[str, str]:
    """The environment of stages that run in the worktree ``root``: its modules, the checkout's MLflow database and
    spool, and one campaign in MLflow wherever they run."""
    path = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    store = os.environ.get("MLFLOW_TRACKING_URI", f"sqlite:///{checkout.resolve() / 'mlflow.db'}")
    of = {HOME: str(checkout.resolve()), "AGENTPRM_CAMPAIGN": campaign}
    return {"PYTHONPATH": path, "MLFLOW_TRACKING_URI": store, **of}
