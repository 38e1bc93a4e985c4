"""Stage ``games``: the games to train on and to be measured on, one table a split, and one of guard games.

They come from the world's generator, or from its published data (``games.published``), whose splits the world's spec
maps to ours. On guard games PRMs are judged (:func:`agentprm_core.worlds.held_out_places.guard_games`).
"""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

from agentprm_core.datasets import games_to_table, write_table
from agentprm_core.errors import EXPECTED
from agentprm_core.suites import games_suite
from agentprm_core.types import Game
from agentprm_core.worlds import WorldSpec, world_spec
from agentprm_core.worlds.game_sources import loaded_by
from agentprm_core.worlds.held_out_places import games_by_place, generated_games, guard_games
from tasks.frame import layout
from tasks.frame.sections import Published
from tasks.frame.stage import Stage, StageError, run_stage

GAMES_A_GROUP = 1024
"""Rows of a row group. A game has 30 kB and more: 22,000 of them in one group take four times as long to read."""


def work(stage: Stage) -> None:
    """Make or read the games of every split."""
    section, spec = stage.params.games, world_spec(stage.params.env.world)
    wanted = {split: getattr(section, split) for split in layout.SPLITS}
    if isinstance(section.published, Published):
        given = section.published
        games = games_by_place(spec, Path(given.root), wanted, given.generated, stage.seed, given.mixed)
    else:
        games = {split: _games(stage, spec, split, count) for split, count in wanted.items()}
    campaign = [game for found in games.values() for game in found]
    games["guard"] = guard_games(spec, section.guards, stage.seed, campaign)
    wanted["guard"] = len(games["guard"])
    tables = {split: games_to_table(found) for split, found in games.items()}
    stage.gate(games_suite(tables, wanted, spec))
    for split, table in tables.items():
        write_table(table, layout.games(split), GAMES_A_GROUP)
    stage.report({split: _counts(found, spec) for split, found in games.items()})
    stage.wrote(*map(layout.games, tables))


def _games(stage: Stage, spec: WorldSpec, split: str, count: int) -> list[Game]:
    root = stage.params.games.root
    if count == 0:
        return []
    if root is None:
        return generated_games(spec, count, stage.seed, split)
    return _published(spec, Path(root), split, count, stage.seed)


def _published(spec: WorldSpec, root: Path, split: str, count: int, seed: int) -> list[Game]:
    """``count`` published games of a split, drawn by the seed. Raises StageError where there are fewer, or none."""
    if spec.load is None or split not in spec.published_splits:
        raise StageError(f"params.yaml: games.published: {spec.name} has no published games of {split}: set null")
    found = loaded_by(spec, root, spec.published_splits[split], None)
    if len(found) < count:
        there = ", ".join(f"{number} of {name}" for name, number in _there(spec, root).items())
        raise StageError(
            f"params.yaml: games.{split}: {count} is not allowed: at most {len(found)}. {root} has games: {there}; set "
            "games.train, games.seen and games.unseen to no more, then demos.games, rollout.games and method.games to "
            "at most games.train"
        )
    return sorted(random.Random(seed).sample(found, count), key=lambda game: game.id)


def _there(spec: WorldSpec, root: Path) -> dict[str, int]:
    """How many published games each split has, of those that can be read."""
    there = {}
    for split, theirs in spec.published_splits.items():
        with suppress(*EXPECTED):
            there[split] = len(loaded_by(spec, root, theirs, None)) if spec.load else 0
    return there


def _counts(games: list[Game], spec: WorldSpec) -> dict:
    kinds = {kind: sum(spec.label(game) == kind for game in games) for kind in spec.members or spec.kinds}
    different = {f"{name}s": len({game.attributes[name] for game in games}) for name in spec.attributes}
    return {"games": len(games), **different, **kinds}


if __name__ == "__main__":
    run_stage("games", work, iterated=False, gated=True)
