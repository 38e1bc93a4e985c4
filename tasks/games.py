"""Stage ``games``: the households to train on and to be measured on, one table a split.

``generated`` draws them from what the alfworld package ships; ``published`` reads a tree that alfworld-download left
(its ``valid_seen`` and ``valid_unseen`` become ``seen`` and ``unseen``).
"""

from __future__ import annotations

import random
from pathlib import Path

from agentprm_core.datasets import games_to_table, write_table
from agentprm_core.types import TASK_TYPES, Game
from tasks import layout
from tasks.params import Games
from tasks.stage import Stage, StageError, run_stage
from tasks.suites import games_suite

PUBLISHED = {"train": "train", "seen": "valid_seen", "unseen": "valid_unseen"}


def work(stage: Stage) -> None:
    """Make or read the games of every split."""
    section = stage.params.games
    wanted = {split: getattr(section, split) for split in layout.SPLITS}
    games = {split: _games(section, split, count, stage) for split, count in wanted.items()}
    tables = {split: games_to_table(found) for split, found in games.items()}
    stage.gate(games_suite(tables, wanted))
    for split, table in tables.items():
        write_table(table, layout.games(split))
    stage.report({split: _counts(found) for split, found in games.items()})
    stage.wrote(*map(layout.games, layout.SPLITS))


def _games(section: Games, split: str, count: int, stage: Stage) -> list[Game]:
    if count == 0:
        return []
    if section.source == "published":
        return _published(Path(section.published_root), PUBLISHED[split], count, stage.seed)
    from agentprm_core.envs.alfworld.households import generate_games

    return generate_games(count, stage.seed, split, stage.params.env.engine)


def _published(root: Path, split: str, count: int, seed: int) -> list[Game]:
    """``count`` games of a published split, drawn by the seed. Raises StageError where it has fewer."""
    from agentprm_core.envs.alfworld.games import load_games

    found = load_games(root, split)
    if len(found) < count:
        raise StageError(f"params.yaml asks for {count} games of {split}, {root} has {len(found)}")
    return sorted(random.Random(seed).sample(found, count), key=lambda game: game.id)


def _counts(games: list[Game]) -> dict:
    types = {kind: sum(game.task_type == kind for game in games) for kind in TASK_TYPES}
    return {"games": len(games), "floor_plans": len({game.floor_plan for game in games}), **types}


if __name__ == "__main__":
    run_stage("games", work, iterated=False, gated=True)
