"""Where data comes from, by ``dvc.lock``: the stages that made it, their figures, and the md5 of outs."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from functools import lru_cache
from pathlib import Path

import yaml

from tasks.frame import layout

LOCK = Path("dvc.lock")


def upstream(path: Path, apart: Collection[str] = ()) -> list[dict]:
    """The stages that ``path`` comes from: task, iteration, figures and their md5, none of ``apart`` (JSON of task and
    iteration). Empty where DVC has not run them."""
    stages = _locked()
    made_by = {out["path"]: name for name, stage in stages.items() for out in stage.get("outs", ())}
    waiting, found = [str(path)], dict[str, dict]()
    while waiting:
        at = Path(waiting.pop())
        name = next((made_by[place] for place in (str(at), *map(str, at.parents)) if place in made_by), None)
        if name is None or name in found:
            continue
        found[name] = stages[name]
        waiting += [
            dep["path"] for dep in stages[name].get("deps", ()) if Path(dep["path"]).parts[0] == str(layout.DATA)
        ]
    told = [_told(name, stage) for name, stage in sorted(found.items())]
    return [one for one in told if one and json.dumps([one["task"], one["iteration"]]) not in apart]


def locked_md5(path: Path) -> str | None:
    """The md5 of an out that DVC has written down; None of one that no stage has made under DVC."""
    outs = [out for stage in _locked().values() for out in stage.get("outs", ())]
    return next((out.get("md5") for out in outs if out["path"] == str(path)), None)


def _told(name: str, stage: Mapping) -> dict | None:
    """None of a stage whose figures are not on this disk as they were locked."""
    path = layout.metrics(name.replace("@", "-"))
    md5 = next((out.get("md5") for out in stage.get("outs", ()) if out["path"] == str(path)), None)
    if md5 is None or not path.exists():
        return None
    task, _, number = name.partition("@")
    key = int(number) if number.isdecimal() else None
    return {"task": task, "iteration": key, "figures": {task: json.loads(path.read_text())}, "md5": md5}


def _locked() -> dict[str, dict]:
    return _stages(LOCK.read_text()) if LOCK.exists() else {}


@lru_cache(maxsize=1)  # a whole campaign's takes a quarter of a second, and a stage asks for each of its deps
def _stages(lock: str) -> dict[str, dict]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(lock, loader).get("stages", {})
