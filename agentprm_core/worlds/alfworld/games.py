"""Games on disk: reads and writes the tree that ``alfworld-download`` leaves.

The tree is ``<root>/json_2.1.1/<split>/<task>/<trial>/{game.tw-pddl, traj_data.json}``. Published and generated
games lie in it alike, and the published engine plays both.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from agentprm_core.errors import DataError
from agentprm_core.types import Game
from agentprm_core.worlds.alfworld.kinds import TASK_TYPES
from agentprm_core.worlds.base import UnsupportedGame

TREE = "json_2.1.1"
"""The folder between the root and the splits (the version of the ALFRED data the games were made from)."""

UNKNOWN_GOAL = "UNKNOWN GOAL"
"""What the package's grammar says where a game's task sentence goes."""

_GOAL = re.compile(r'"Your task is to: (.*)"')
_PUT = re.compile(r'action\s+PutObject\s*\{\s*template\s*::\s*"([^"]*)"')
_FETCH_AGAIN = "fetch it again with alfworld-download, or delete its folder"


@cache
def package_logic() -> tuple[str, str]:
    """(PDDL domain, text grammar) of the installed alfworld package, read without importing it.

    Raises ModuleNotFoundError where alfworld is not installed.
    """
    data = package_folder() / "data"
    return (data / "alfred.pddl").read_text(), (data / "alfred.twl2").read_text()


def package_folder() -> Path:
    """The folder of the installed alfworld package. Raises ModuleNotFoundError where there is none."""
    spec = find_spec("alfworld")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("the alfworld package is not installed: pip install alfworld==0.4.2")
    return Path(spec.origin).parent


def load_games(root: Path, split: str, limit: int | None = None) -> list[Game]:
    """The playable games of one split, sorted by id: all, or a fixed sample of ``limit`` of them.

    The sample is taken by the ids' digests, so it mixes task types, and a smaller one is part of a larger.
    ``root`` holds ``json_2.1.1`` or is that folder. Left out, as ``AlfredTWEnv`` leaves them out: tasks with
    sliced or movable objects, task types other than the six, trials without a game file, and games marked
    unsolvable. Raises FileNotFoundError when the split is missing or empty, and :class:`UnsupportedGame`, naming
    the file, for a game that is truncated or in the dialect of alfworld before 0.4.
    """
    tree = root if root.name == TREE else root / TREE
    folder = tree / split
    if not folder.is_dir():
        found = sorted(path.name for path in tree.iterdir() if path.is_dir()) if tree.is_dir() else []
        there_are = f"there are: {', '.join(found)}" if found else "there are none; run alfworld-download"
        raise FileNotFoundError(f"no split {split!r} in {tree} ({there_are})")
    games: list[Game] = []
    for trial in sorted(_trials(folder), key=_lot) if limit is not None else _trials(folder):
        if len(games) == limit:
            break
        game = _read_game(trial, split)
        if game is not None:
            games.append(game)
    if not games and limit != 0:
        raise FileNotFoundError(f"{folder} holds no playable game (<task>/<trial>/game.tw-pddl); run alfworld-download")
    return sorted(games, key=lambda game: game.id)


def write_game(game: Game, root: Path) -> Path:
    """Write ``game`` into the tree under ``root`` as the published engine reads it; returns its ``game.tw-pddl``.

    The domain and the grammar are the installed package's, so the text is in its dialect.
    """
    domain, grammar = package_logic()
    folder = root / TREE / game.id
    folder.mkdir(parents=True, exist_ok=True)
    traj = {
        "task_id": folder.name,
        "task_type": game.kind,
        "pddl_params": goal_params(game),
        "scene": {"floor_plan": f"FloorPlan{game.attributes['floor_plan']}"},
        "turk_annotations": {"anns": []},
    }
    (folder / "traj_data.json").write_text(json.dumps(traj))
    path = folder / "game.tw-pddl"
    path.write_text(json.dumps(game_data(game, domain, grammar)))
    return path


def game_data(game: Game, domain: str, grammar: str) -> dict:
    """The content of ``game.tw-pddl``."""
    sentence = json.dumps(game.goal.removesuffix("."))[1:-1]
    return {
        "pddl_domain": domain,
        "grammar": grammar.replace(UNKNOWN_GOAL, sentence),
        "pddl_problem": game.payload,
        "solvable": True,
        "walkthrough": None,
    }


def goal_params(game: Game) -> dict[str, str | bool]:
    """ALFRED's parameters of the task, from its folder's name: ``<type>-<object>-<movable>-<parent>-<floor plan>``.

    The lamp of ``look_at_obj_in_light`` stands in the parent's place. Raises DataError for a name that is not one.
    """
    parts = game.id.split("/")[1].split("-")
    if len(parts) != 5:
        raise DataError(f"{game.id}: the task folder is not <type>-<object>-<movable>-<parent>-<floor plan>")
    _, target, movable, parent, _ = parts
    lamp = game.kind == "look_at_obj_in_light"
    return {
        "object_target": target,
        "mrecep_target": "" if movable == "None" else movable,
        "parent_target": "" if lamp else parent,
        "toggle_target": parent if lamp else "",
        "object_sliced": False,
    }


def _trials(folder: Path) -> Iterator[Path]:
    """The trial folders of a split that hold none of the tasks with movable receptacles or sliced objects."""
    for task in folder.iterdir():
        if task.is_dir() and "movable" not in task.name and "Sliced" not in task.name:
            yield from (path for path in task.iterdir() if path.is_dir())


def _lot(trial: Path) -> bytes:
    """What decides whether a trial is in a sample: a digest of its id, whatever the file system's order."""
    return hashlib.blake2b(f"{trial.parent.name}/{trial.name}".encode(), digest_size=8).digest()


def _read_game(trial: Path, split: str) -> Game | None:
    """The game of one trial folder, or None where the published loader skips it."""
    path = trial / "game.tw-pddl"
    traj_path = trial / "traj_data.json"
    if not path.exists() or not traj_path.exists():
        return None
    traj = _read_json(traj_path, ("task_type", "scene"))
    if traj["task_type"] not in TASK_TYPES:
        return None
    data = _read_json(path, ("pddl_domain", "grammar", "pddl_problem"))
    if not data.get("solvable"):
        return None
    _check_dialect(path, data["grammar"])
    _check_problem(path, data["pddl_problem"])
    return Game(
        id=f"{split}/{trial.parent.name}/{trial.name}",
        world="alfworld",
        split=split,
        kind=traj["task_type"],
        goal=_goal(path, data["grammar"]),
        payload=data["pddl_problem"],
        attributes={
            "floor_plan": int(traj["scene"]["floor_plan"].removeprefix("FloorPlan")),
            "source": "published",
        },
    )


def _read_json(path: Path, keys: tuple[str, ...]) -> dict:
    try:
        data = json.loads(path.read_bytes())
    except ValueError as error:
        raise UnsupportedGame(f"{path}: not a whole JSON file ({error}); {_FETCH_AGAIN}") from error
    missing = [key for key in keys if key not in data]
    if missing:
        raise UnsupportedGame(f"{path}: lacks {', '.join(missing)}; {_FETCH_AGAIN}")
    return data


def _check_dialect(path: Path, grammar: str) -> None:
    """alfworld 0.4.0 changed ``put X in/on Y`` to ``move X to Y``; a policy of one is mute in the other."""
    template = _PUT.search(grammar)
    if template is None:
        raise UnsupportedGame(f"{path}: its grammar has no action PutObject; {_FETCH_AGAIN}")
    if template[1] != "move {o} to {r}":
        raise UnsupportedGame(
            f"{path}: a game in the old dialect ({template[1]!r}; alfworld since 0.4.0 says 'move {{o}} to {{r}}'); "
            "fetch the games again with alfworld-download of alfworld 0.4, or convert them: "
            "replace the grammar by the installed package's data/alfred.twl2 with the game's own task sentence"
        )


def _check_problem(path: Path, problem: str) -> None:
    if "(:goal" not in problem or problem.count("(") != problem.count(")"):
        raise UnsupportedGame(f"{path}: its PDDL problem is cut off; {_FETCH_AGAIN}")


def _goal(path: Path, grammar: str) -> str:
    sentence = _GOAL.search(grammar)
    if sentence is None or UNKNOWN_GOAL in sentence[1]:
        raise UnsupportedGame(f"{path}: its grammar states no task; {_FETCH_AGAIN}")
    return json.loads(f'"{sentence[1]}"')
