"""Episodes as a log of Inspect (https://inspect.aisi.org.uk), to be read with ``inspect view``.

    agentprm inspect-log --episodes data/rollouts/1 --labels data/labels/1 --out logs/rollouts-1.json
    uvx --from inspect-ai inspect view --log-dir logs

A sample is an episode: what the world said is a user's message, what the policy said is an assistant's. It has the
scores ``won`` and ``reward``. Labels of turns stand in the metadata of the assistant's messages.

The log is Inspect's documented JSON (version 2 of its schema), written without Inspect. A name that ends in ``.eval``
is Inspect's smaller format, whose layout is its own affair: that needs ``inspect_ai`` in this environment. Its packages
do not go with this project's pins, so an environment of its own is better (``uvx``, ``pipx``).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from agentprm_core.arguments import OneLineParser, called, count
from agentprm_core.datasets import atomic_write, episodes_from_table, games_from_table, read_table
from agentprm_core.errors import EXPECTED, DataError
from agentprm_core.policy.prompt import chat_reply
from agentprm_core.types import EPISODES, GAMES, LABELS, Episode, Game
from tasks.frame.layout import DATA

VERSION = 2
"""Of Inspect's schema of logs."""
FORMATS = (".json", ".eval")

Labels = Mapping[tuple[str, int, int], Mapping[str, float]]
"""(game, episode, turn) → what is known of the turn."""


def log_of(
    episodes: Sequence[Episode], games: Mapping[str, Game], labels: Labels, *, name: str, policy: str, when: datetime
) -> dict[str, Any]:
    """Inspect's ``EvalLog`` as JSON. ``games``: what is known of them, by id; ``name``: of the task in the viewer;
    ``policy``: who played."""
    samples = [_sample(episode, games.get(episode.game_id), labels, policy) for episode in episodes]
    clock = when.isoformat(timespec="seconds")
    key = hashlib.sha256(f"{name} {policy} {len(samples)}".encode()).hexdigest()[:22]
    return {
        "version": VERSION,
        "status": "success",
        "eval": {
            "eval_id": key,
            "run_id": key,
            "task_id": key,
            "created": clock,
            "task": name,
            "model": f"agentprm/{policy}",
            "dataset": {"name": name, "samples": len(samples), "sample_ids": [sample["id"] for sample in samples]},
            "config": {},
        },
        "plan": {"name": "plan", "steps": [], "config": {}},
        "results": {
            "total_samples": len(samples),
            "completed_samples": len(samples),
            "scores": [_mean(score, samples) for score in ("won", "reward")],
        },
        "stats": {"started_at": clock, "completed_at": clock, "model_usage": {}},
        "samples": samples,
    }


def _sample(episode: Episode, game: Game | None, labels: Labels, policy: str) -> dict[str, Any]:
    messages = list(_messages(episode, labels, policy))
    known = {"kind": game.kind, "world": game.world, "goal": game.goal} if game else {}
    said = {"message": messages[-1], "stop_reason": "stop"} if messages else None
    return {
        "id": f"{episode.game_id}, {episode.index}",
        "epoch": 1,
        "input": game.goal if game else episode.turns[0].observation,
        "target": "",
        "messages": messages,
        "output": {"model": f"agentprm/{policy}", "choices": [said] if said else []},
        "scores": {"won": {"value": float(episode.won)}, "reward": {"value": episode.reward}},
        "metadata": {
            **known,
            "game": episode.game_id,
            "episode": episode.index,
            "seed": episode.seed,
            "actions": episode.length,
            "start": episode.start,
            "truncated": episode.truncated,
        },
        "store": {},
        "events": [],
        "model_usage": {},
    }


def _messages(episode: Episode, labels: Labels, policy: str) -> Iterator[dict[str, Any]]:
    for number, turn in enumerate(episode.turns):
        listed = "\n\nAdmissible commands:\n" + "\n".join(turn.admissible) if turn.admissible else ""
        known = {
            "turn": number,
            "state_key": turn.state_key,
            "valid": turn.valid,
            "replayed": number < episode.start,
            **labels.get((episode.game_id, episode.index, number), {}),
        }
        content = chat_reply(turn.action, turn.reason) if turn.reason else turn.action
        yield {"role": "user", "content": turn.observation + listed, "source": "input"}
        yield {
            "role": "assistant",
            "content": content,
            "source": "generate",
            "model": f"agentprm/{policy}",
            "metadata": known,
        }


def _mean(score: str, samples: Sequence[Mapping]) -> dict[str, Any]:
    values = [sample["scores"][score]["value"] for sample in samples]
    mean = {"name": "mean", "value": sum(values) / len(values), "params": {}}
    return {"name": score, "scorer": score, "params": {}, "metrics": {"mean": mean}}


def write_log(log: Mapping[str, Any], path: Path) -> None:
    """The file appears whole. Raises DataError for ``.eval`` where Inspect is not installed."""
    write = _as_eval(path) if path.suffix == ".eval" else _as_json
    with atomic_write(path) as aside:
        write(log, aside)


def _as_json(log: Mapping[str, Any], path: Path) -> None:
    path.write_text(json.dumps(log, ensure_ascii=False))


def _as_eval(path: Path) -> Callable[[Mapping[str, Any], Path], None]:
    try:
        from inspect_ai.log import EvalLog, write_eval_log  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise DataError(
            f"--out: {path} is not allowed: .json, since inspect_ai, which writes .eval, is not installed here"
        ) from error
    return lambda log, aside: write_eval_log(EvalLog.model_validate(log), str(aside), format="eval")


def make(asked: argparse.Namespace) -> int:
    """Write the log that the command line asks for; how many episodes it has."""
    if asked.out.suffix not in FORMATS:
        raise DataError(f"--out: {asked.out} is not allowed: a name that ends in {' or '.join(FORMATS)}")
    table = _table(asked.episodes, "episodes.parquet", EPISODES)
    if not table.num_rows:
        raise DataError(f"--episodes: {asked.episodes} has no episodes")
    episodes = list(islice(episodes_from_table(table), asked.most))
    labels: dict[tuple[str, int, int], dict[str, float]] = {}
    if asked.labels:
        for row in _table(asked.labels, "labels.parquet", LABELS).to_pylist():
            about = {"label": row["q"], "visits": row["visits"]}
            labels[row["game_id"], row["episode"], row["turn"]] = about
    folder = asked.games or Path(DATA) / "games"
    known = [game for path in sorted(folder.glob("*.parquet")) for game in games_from_table(read_table(path, GAMES))]
    written = log_of(
        episodes,
        {game.id: game for game in known},
        labels,
        name=asked.name or " ".join(asked.episodes.resolve().parts[-2:]),
        policy=table["policy"][0].as_py(),
        when=datetime.now(UTC),
    )
    write_log(written, asked.out)
    return len(episodes)


def _table(path: Path, name: str, schema: pa.Schema) -> pa.Table:
    """A table, or the one of this name in a folder. Raises DataError for what is none."""
    file = path / name if path.is_dir() else path
    try:
        return read_table(file, schema)
    except FileNotFoundError as error:
        raise DataError(f"{file}: no such table; give a table, or a folder with {name}") from error
    except OSError as error:
        raise DataError(f"{file}: cannot be read as a table: {error}") from error


def parser(prog: str) -> argparse.ArgumentParser:
    """Of the command line."""
    found = OneLineParser(prog=prog, description=(__doc__ or "").split("\n")[0])
    found.add_argument("--episodes", type=Path, required=True, help="a table of episodes, or the folder of one")
    found.add_argument("--out", type=Path, required=True, help="FILE.json, or FILE.eval where inspect_ai is installed")
    found.add_argument("--labels", type=Path, help="labels of these turns: data/labels/N")
    found.add_argument("--games", type=Path, help="folder of tables that tell kind and goal (default data/games)")
    found.add_argument("--most", type=count, help="write the first so many episodes (default: all)")
    found.add_argument("--name", help="of the task in the viewer (default: the folder's)")
    return found


def main(prog: str = "python -m tasks.commands.inspect_log") -> None:
    """Write the log."""
    asked = parser(prog).parse_args()
    try:
        written = make(asked)
    except EXPECTED as error:
        sys.exit(f"{called(prog)}: {error}")
    print(f"{asked.out}: {written} episodes; open it with inspect view --log-dir {asked.out.parent}")


if __name__ == "__main__":
    main()
