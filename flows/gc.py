"""What DVC's cache and remote, and old worktrees, take, and what nobody needs any more. Deletes only when told to.

    python -m flows.gc                       # sizes, and what could go
    python -m flows.gc --delete              # it goes
    python -m flows.gc --remote --delete     # from the default DVC remote, too

Needed is what ``dvc.lock`` or a ``.dvc`` file names in this checkout, in any worktree of it, or at the tip of any Git
branch, tag or DVC experiment, so every campaign whose branch ``campaign/NAME`` is there; and the weights of MLflow's
champions, their challengers and the champions before. Where MLflow or the Git remote cannot be asked nothing goes.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dvc.repo import Repo

from agentprm_core.arguments import not_negative
from agentprm_core.errors import EXPECTED, DataError
from flows.snapshot import CAMPAIGNS, SnapshotError, branch_of, exists, git, held, remove
from tasks.frame.secrets import redacted

DAYS = 1.0
"""Younger objects stay: a stage that has just ended may not be in any ``dvc.lock`` yet."""
CHAMPIONS = "champions"
_MD5 = re.compile(r"md5: ([0-9a-f]{32}(?:\.dir)?)\b")
_SHOWN = (".dvc/cache", ".scratch", "mlruns", "mlflow.db", ".prefect")


@dataclass(frozen=True, slots=True)
class Stored:
    """An object of a cache or remote."""

    path: str
    size: int
    changed: float
    """Seconds since 1970."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a cache or remote holds, and what of it may go."""

    where: str
    objects: Mapping[str, Stored]
    unneeded: Sequence[str]
    runs: Sequence[str]
    """Paths of entries of the run cache that name what may go."""


def named(root: Path) -> dict[str, set[str]]:
    """{who names it: md5s} of ``dvc.lock`` and ``.dvc`` files of worktrees, and at the tips of all refs."""
    found: dict[str, set[str]] = {}
    worktrees = [
        line[9:] for line in git(root, "worktree", "list", "--porcelain").splitlines() if line[:9] == "worktree "
    ]
    for tree in map(Path, worktrees):
        files = [tree / "dvc.lock", *(path for path in tree.glob("**/*.dvc") if path.is_file())]
        found[str(tree)] = {md5 for path in files if path.exists() for md5 in _MD5.findall(path.read_text())}
    for ref in git(root, "for-each-ref", "--format=%(refname)").splitlines():
        try:
            lines = git(root, "grep", "--no-color", "-h", "md5: ", ref, "--", "dvc.lock", "*.dvc")
        except SnapshotError:  # it names none
            continue
        found[ref.removeprefix("refs/").removeprefix("heads/")] = set(_MD5.findall(lines))
    return {who: md5s for who, md5s in found.items() if md5s}


def champions() -> set[str]:
    """The md5s of weights that a champion, a challenger or a roll-back needs. Raises DataError where MLflow is away."""
    from tasks.frame import champion
    from tasks.frame.mlflow_store import connect
    from tasks.frame.sender import prepare
    from tasks.frame.tracking import tracking_uri

    uri = tracking_uri()
    if uri.startswith("sqlite:///") and not Path(uri.removeprefix("sqlite:///")).exists():
        return set()
    prepare()
    try:
        client, _ = connect()
        needed = set[str]()
        for model in champion.arenas(client):
            versions = {str(v.version): v.tags for v in client.search_model_versions(f"name='{model.name}'")}
            numbers = {str(number) for number in model.aliases.values()}
            numbers |= {tags["champion_before"] for tags in versions.values() if "champion_before" in tags}
            needed |= {versions[number]["dvc_md5"] for number in numbers & versions.keys()}
        return needed
    except Exception as error:
        said = redacted(str(error)).splitlines()
        raise DataError(f"MLflow cannot say which weights its champions need: {said[0] if said else error}") from error


def look(where: str, odb: Any, needed: Iterable[str], listings: Sequence[Any], days: float) -> Found:
    """What ``odb`` holds, and what of it is not ``needed`` and older than ``days``. ``listings``: object stores that
    may have the lists of the files of needed folders."""
    kept = set(needed)
    for folder in [md5 for md5 in kept if md5.endswith(".dir")]:
        kept |= _files_of(folder, listings)
    objects = _stored(odb)
    limit = time.time() - 86400 * days
    unneeded = sorted(md5 for md5, one in objects.items() if md5 not in kept and one.changed < limit)
    fs, runs = odb.fs, odb.fs.join(_base(odb), "runs")
    entries = list(fs.find(runs)) if unneeded and fs.exists(runs) else []
    gone = set(unneeded)
    stale = [path for path in entries if gone & set(_MD5.findall(_text(fs, path)))]
    return Found(where, objects, unneeded, stale)


def old_worktrees(root: Path) -> list[Path]:
    """Folders of campaigns whose branch is gone."""
    folders = [path for path in (root / CAMPAIGNS).glob("*") if path.is_dir()]
    return [path for path in folders if not exists(root, f"refs/heads/{branch_of(path.name)}")]


def collect(root: Path, *, remote: bool, days: float, delete: bool) -> None:
    """Print sizes and what may go; with ``delete`` it goes. Raises DataError or SnapshotError, with nothing deleted."""
    for pid in (root / CAMPAIGNS).glob("*/*.pid"):
        with held(pid, f"campaign {pid.parent.name} is running here: wait until it has ended"):
            pass
    if remote:
        git(root, "fetch", "--quiet", "--all")  # campaigns of other hosts
    who = {**named(root), CHAMPIONS: champions()}
    needed = set[str]().union(*who.values())
    with Repo(str(root)) as repo, repo.lock:
        if remote and not repo.config["core"].get("remote"):
            raise DataError("--remote: DVC has no default remote here: dvc remote add --default NAME URL")
        cache = repo.cache.local
        stores = [(".dvc/cache", cache)]
        if remote:
            stores.append((f"remote {repo.config['core'].get('remote')}", repo.cloud.get_remote_odb()))
        listings = [odb for _, odb in stores]
        all_found = [look(where, odb, needed, listings, days) for where, odb in stores]
        old = old_worktrees(root)
        _show(root, who, all_found, listings, old)
        if not delete:
            print("Nothing was deleted. With --delete (make gc DELETE=yes) what may go goes.")
            return
        for found, (_, odb) in zip(all_found, stores):
            paths = [*found.runs, *(found.objects[md5].path for md5 in found.unneeded)]
            for path in paths:
                odb.fs.remove(path)
    for folder in old:
        remove(root, folder)
    print("What may go is gone.")


def _stored(odb: Any) -> dict[str, Stored]:
    fs = odb.fs
    fs.fs.invalidate_cache()
    listed = fs.fs.find(odb.path, detail=True) if fs.exists(odb.path) else {}
    found = {}
    for path, info in listed.items() if isinstance(listed, dict) else ((path, fs.info(path)) for path in listed):
        md5 = "".join(fs.parts(path)[-2:])
        if re.fullmatch(r"[0-9a-f]{32}(\.dir)?", md5):
            changed = info.get("mtime", info.get("LastModified", 0))
            seconds = changed if isinstance(changed, int | float) else changed.timestamp()
            found[md5] = Stored(path, info["size"], seconds)
    return found


def _files_of(folder: str, listings: Sequence[Any]) -> set[str]:
    for odb in listings:
        path = odb.oid_to_path(folder)
        if odb.fs.exists(path):
            return {entry["md5"] for entry in json.loads(_text(odb.fs, path))}
    return set()  # nowhere: nothing of it can come back


def _base(odb: Any) -> str:
    """The folder that cache or remote was given as: objects lie in ``files/md5`` of it, the run cache in ``runs``."""
    base = odb.path
    for part in ("md5", "files"):
        base = odb.fs.parent(base) if odb.fs.name(base) == part else base
    return base


def _text(fs: Any, path: str) -> str:
    with fs.open(path, "r") as stream:
        return stream.read()


def _show(
    root: Path, who: Mapping[str, set[str]], all_found: Sequence[Found], listings: Sequence[Any], old: Sequence[Path]
) -> None:
    for name in _SHOWN:
        print(f"{_size(_used(root / name)):>10}  {name}")
    for found in all_found:
        print(f"\n{found.where}: {len(found.objects)} objects, {_size(_sum(found, found.objects))}")
        for name, md5s in who.items():
            mine = md5s.union(*(_files_of(md5, listings) for md5 in md5s if md5.endswith(".dir")))
            print(f"{_size(_sum(found, mine)):>10}  needed by {name}")
        print(f"{_size(_sum(found, found.unneeded)):>10}  may go: {len(found.unneeded)} objects that nothing needs")
    for folder in old:
        print(f"{_size(_used(folder)):>10}  may go: {folder.relative_to(root)}, whose branch is gone")


def _sum(found: Found, md5s: Iterable[str]) -> int:
    return sum(found.objects[md5].size for md5 in md5s if md5 in found.objects)


def _used(path: Path) -> int:
    files = [path] if path.is_file() else path.rglob("*")
    return sum(file.lstat().st_size for file in files if file.is_file() and not file.is_symlink())


def _size(size: float) -> str:
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.1f} GB"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m flows.gc", description="What takes space, and what may go.")
    parser.add_argument("--delete", action="store_true", help="delete what may go; else it is only shown")
    parser.add_argument("--remote", action="store_true", help="in the default DVC remote, too")
    parser.add_argument("--days", type=not_negative, default=DAYS, help=f"younger objects stay ({DAYS:g})")
    asked = parser.parse_args(arguments)
    try:
        collect(Path.cwd(), remote=asked.remote, days=asked.days, delete=asked.delete)
    except (*EXPECTED, SnapshotError) as error:
        print(f"{error}. Nothing was deleted", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
