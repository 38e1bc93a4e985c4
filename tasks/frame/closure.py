"""The code that a stage depends on: every module of this repository that ``tasks.NAME`` can import.

    python -m tasks.frame.closure            # the code deps of every stage, as the imports have them
    python -m tasks.frame.closure --write    # into dvc.yaml; data deps, params and comments stay

Every world is in the closure, since a name in params.yaml chooses one. Where dvc.yaml has the dep ``${env.code}``, that
stands for the folders of the worlds: DVC puts there the folder or file that ``env.code`` of params.yaml names, and an
edit of another world re-runs nothing.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping
from pathlib import Path

from ruamel.yaml import YAML

from agentprm_core.datasets import atomic_write
from agentprm_core.errors import DataError
from tasks.frame.imports import PACKAGES, Source

DVC = Path("dvc.yaml")
LOCK = "requirements.lock"
"""The versions of all packages: they decide the bytes of every stage."""
WORLDS = "agentprm_core.worlds"
"""The registry of worlds; each package in it is the folder of a world."""
CHOSEN = "${env.code}"
"""The dep that stands for the folder of the world that is played."""

MIXTURES = {"all_worlds"}
"""Worlds that are made of others: for them ``env.code`` is the folder of all worlds."""

NAMED = {
    "agentprm_core.methods.critics": "agentprm_core/methods/${critic.name}.py",
    "agentprm_core.methods.methods": "agentprm_core/methods/${method.name}.py",
}
"""Registries of files, and the dep that stands for the file that params.yaml names. An edit of another file of the
registry re-runs nothing, nor does a new line in it. What these files import counts, whichever of them is named."""

NO_EFFECT = {
    "tasks.frame.champion": "what MLflow is told of policies that compete",
    "tasks.frame.clock": "seconds go to MLflow and to .scratch/timings",
    "tasks.frame.gatekeeper": "a process that asks the gates; what is expected is in agentprm_core.suites",
    "tasks.frame.home": "where MLflow's database and spool are",
    "tasks.frame.lineage": "what MLflow is told of a policy's origin",
    "tasks.frame.memory": "the line of a stage that ends without any out",
    "tasks.frame.mlflow_store": "writes to MLflow alone",
    "tasks.frame.odds": "refuses values of params.yaml, and never changes one",
    "tasks.frame.params": "reads and refuses; the values that it reads are the params of the stages",
    "tasks.frame.sections": "the shape of params.yaml; the values that it holds are the params of the stages",
    "tasks.frame.servers": "where servers are, which decides no byte; that they play is model.constrained",
    "tasks.frame.shards": "where portions are played, which decides no byte",
    "tasks.frame.tracing": "writes to MLflow alone",
    "tasks.frame.tracking": "writes to MLflow alone",
    "tasks.frame.validation": "refuses values of params.yaml, and never changes one",
}
"""Modules that cannot change the bytes of any out, and why: an edit of them re-runs nothing. What is reached through
them alone does not count either. Every other module counts."""

NO_EFFECT_HERE = {
    ("tasks.label", "tasks.report.figures"): "a picture for MLflow",
    ("tasks.evaluate", "tasks.commands.standalone"): "another command behind the same name",
}
"""(who imports, what): imports that cannot change the bytes of the importing stage's outs, and why."""


def closure(source: Source, *starts: str, every_world: bool = True) -> set[str]:
    """The modules ``starts`` and all that they can import, the packages that these lie in included. Without
    ``every_world`` the names in the registry of worlds lead nowhere.

    Raises:
        DataError: no module of this name.
    """
    found: set[str] = set()
    waiting = list(starts)
    while waiting:
        name = waiting.pop()
        if name not in source.paths:
            raise DataError(f"{name}: no such module in {', '.join(PACKAGES)}")
        if name in found or name in NO_EFFECT:
            continue
        found.add(name)
        leads = source.imports[name]
        if name == WORLDS and not every_world:
            leads = {other for other in leads if _world(source.paths[other]) is None}
        waiting += [other for other in leads if (name, other) not in NO_EFFECT_HERE]
        if (parent := name.rpartition(".")[0]) in source.paths:
            waiting.append(parent)
    return found


def files(source: Source, start: str, *, chosen: bool = False) -> set[Path]:
    """The files of :func:`closure`, and those beside them that are not Python. The ``__init__`` of a package that has
    no code is left out: it decides nothing. With ``chosen`` what :data:`CHOSEN` stands for is left out too: the
    modules of worlds that nothing outside of their world imports."""
    modules = closure(source, start)
    if chosen:
        world = {name: _world(source.paths[name]) for name in modules}
        crossing = {
            other
            for name in modules - {WORLDS}
            for other in source.imports[name] & modules
            if world[other] not in (None, world[name]) and world[name] not in MIXTURES
        }
        shared = closure(source, *crossing, every_world=False)
        modules = {name for name in modules if world[name] is None or name in shared}
    modules -= {other for registry in NAMED if registry in modules for other in (registry, *source.imports[registry])}
    code = {file for name in modules if not source.says_nothing(file := source.paths[name])}
    return code | {file for folder in {file.parent for file in code} for file in source.data(folder)}


def _world(file: Path) -> str | None:
    """The name of the folder of a world that a file is in; None for one that is in none."""
    registry = tuple(WORLDS.split("."))
    inner = file.parts[len(registry) :]
    return inner[0] if file.parts[: len(registry)] == registry and len(inner) > 1 else None


def code_deps(text: str, root: Path) -> dict[str, list[str]]:
    """Stage of a dvc.yaml → the code deps that it should have, sorted. A whole package stands for its modules."""
    source, stages = Source(root), _stages(text)
    chosen = any(CHOSEN in body["deps"] for body in stages.values())
    found = {}
    for name, body in stages.items():
        module = _module_of(name, body)
        needed = files(source, module, chosen=chosen)
        apart = [CHOSEN] if files(source, module) - needed else []
        apart += sorted(dep for registry, dep in NAMED.items() if registry in closure(source, module))
        found[name] = [LOCK, *_folded(source, needed), *apart]
    return found


def amiss(text: str, root: Path) -> dict[str, tuple[list[str], list[str]]]:
    """Stage of a dvc.yaml → (files of the closure that no dep covers, code that its deps have beside the closure).
    Stages without either are left out.

    Raises:
        DataError: a dep that is not there.
    """
    source, found = Source(root), {}
    for name, body in _stages(text).items():
        listed = [dep for dep in body["deps"] if _is_code(dep)]
        needed = {Path(LOCK)} | files(source, _module_of(name, body), chosen=CHOSEN in listed)
        named = {dep for registry, dep in NAMED.items() if registry in closure(source, _module_of(name, body))}
        covered = {file for dep in listed if dep != CHOSEN and dep not in named for file in _covered(source, dep)}
        missing, beside = needed - covered | {Path(dep) for dep in named - set(listed)}, covered - needed
        if missing or beside:
            found[name] = ([str(file) for file in sorted(missing)], [str(file) for file in sorted(beside)])
    return found


def rewritten(text: str, root: Path) -> str:
    """A dvc.yaml with the code deps that it should have, ahead of the data deps; every other line as it was.

    Raises:
        DataError: a stage's deps are not one a line.
    """
    lines = text.splitlines(keepends=True)
    before: dict[int, list[str]] = {}
    removed: set[int] = set()
    wanted = code_deps(text, root)
    for name, body in _stages(text).items():
        at = [body["deps"].lc.item(number)[0] for number in range(len(body["deps"]))]
        if len(set(at)) < len(at) or not all(lines[line].lstrip().startswith("- ") for line in at):
            raise DataError(f"{DVC}: deps of {name}: write one a line, each behind a dash")
        margin = lines[at[0]][: lines[at[0]].index("-")]
        before[at[0]] = [f"{margin}- {dep}\n" for dep in wanted[name]]
        removed |= {line for line, dep in zip(at, body["deps"], strict=True) if _is_code(dep)}
    groups = ([*before.get(number, []), *([] if number in removed else [line])] for number, line in enumerate(lines))
    return "".join(line for group in groups for line in group)


def _folded(source: Source, needed: set[Path]) -> list[str]:
    """The files, those of a folder as the folder where all of it is needed."""
    folders = {folder for file in needed for folder in file.parents if folder != Path()}
    whole = {folder for folder in folders if source.content(folder) <= needed}
    folded = {file for file in needed | whole if not whole.intersection(file.parents)}
    return sorted(path.as_posix() for path in folded)


def _covered(source: Source, dep: str) -> set[Path]:
    """The files that a code dep stands for."""
    if not (source.root / dep).exists():
        raise DataError(f"{DVC}: {dep}: no such file or folder")
    return source.content(Path(dep)) if (source.root / dep).is_dir() else {Path(dep)}


def _stages(text: str) -> dict[str, Mapping]:
    """Stage → its definition, or the one that ``foreach`` or ``matrix`` repeats."""
    return {name: stage.get("do", stage) for name, stage in YAML().load(text)["stages"].items()}


def _module_of(name: str, body: Mapping) -> str:
    words = shlex.split(body["cmd"])
    if "-m" not in words:
        raise DataError(f"{DVC}: cmd of {name}: not of the form python -m tasks.{name}")
    return words[words.index("-m") + 1]


def _is_code(dep: str) -> bool:
    return dep in (LOCK, CHOSEN) or Path(dep).parts[0] in PACKAGES


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tasks.frame.closure", description="The code that each stage depends on."
    )
    parser.add_argument("--write", action="store_true", help="change dvc.yaml instead of printing")
    asked = parser.parse_args()
    text, root = DVC.read_text(), Path()
    if asked.write:
        with atomic_write(DVC) as aside:
            aside.write_text(rewritten(text, root))
        return
    for name, deps in code_deps(text, root).items():
        print(f"{name}:", *deps, sep="\n  ")


if __name__ == "__main__":
    main()
