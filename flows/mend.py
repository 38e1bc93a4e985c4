"""What DVC leaves behind when it is killed, and does not get over by itself.

    python -m flows.mend        # `make run` and the flows do it before they start DVC

DVC writes ``dvc.lock`` and its list of locks in place, and makes the folder of an entry of the run cache before the
entry. Killed in between, it ends at every later start with an error that names none of them.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import yaml
from dvc.exceptions import NotDvcRepoError
from dvc.lock import make_lock
from dvc.repo import Repo
from dvc.schema import COMPILED_LOCKFILE_SCHEMA
from voluptuous import Invalid

LOCK = "dvc.lock"
_MD5 = re.compile(r"[0-9a-f]{32}(\.dir)?")
PLACEHOLDER = ".interrupted"
"""DVC takes it for a damaged entry and drops it. An empty folder that is taken away could be one that another campaign
is about to write to."""


def mend(root: Path) -> list[str]:
    """Put right what is there of it in the DVC project ``root``; a line for each thing that was."""
    with Repo(str(root)) as repo:
        runs, tmp = Path(repo.stage_cache.cache_dir), Path(str(repo.tmp_dir))
        return [*_run_cache(runs), *_locks(tmp), *_lock_file(repo, root / LOCK)]


def _run_cache(runs: Path) -> Iterator[str]:
    for folder in runs.glob("*/*"):
        with suppress(FileNotFoundError):
            if not any(folder.iterdir()):
                (folder / PLACEHOLDER).touch()
                yield f"{folder}: DVC was killed before it wrote what is to lie there"


def _locks(tmp: Path) -> Iterator[str]:
    """DVC's list of who reads and writes what; nobody who holds a lock there was killed while this one writes it."""
    path = tmp / "rwlock"
    if not path.exists():
        return
    with make_lock(str(tmp / "rwlock.lock"), tmp_dir=str(tmp)), suppress(FileNotFoundError):
        try:
            json.loads(path.read_text())
        except ValueError:
            path.unlink()
            yield f"{path}: DVC was killed while it wrote it"


def _lock_file(repo: Repo, path: Path) -> Iterator[str]:
    """Without it DVC finds in its run cache what each stage wrote."""
    if is_whole(path):
        return
    with repo.lock:
        if not is_whole(path):
            path.unlink()
            yield f"{path}: DVC was killed while it wrote it; what stages wrote comes back from the cache"


def is_whole(path: Path) -> bool:
    """A stage of which outs are missing is one that DVC runs again; half an md5 is an error to it."""
    try:
        text = path.read_text()
        stages = COMPILED_LOCKFILE_SCHEMA(yaml.load(text, yaml.CSafeLoader)).get("stages", {}).values()
    except FileNotFoundError:
        return True
    except (yaml.YAMLError, UnicodeDecodeError, Invalid):
        return False
    files = [one for stage in stages for one in [*stage.get("deps", ()), *stage.get("outs", ())]]
    return text.endswith("\n") and all(_MD5.fullmatch(str(one.get("md5"))) for one in files)


def main() -> None:
    try:
        for line in mend(Path.cwd()):
            print(line, file=sys.stderr)
    except NotDvcRepoError:
        sys.exit("no DVC project here: run this where dvc.yaml is")


if __name__ == "__main__":
    main()
