"""Games without a download: every level with seeds of our own.

``train`` and ``seen`` share levels, and a maze with its mission belongs to one of them by its digest, whatever seed
drew it. ``unseen`` has levels of its own, of each kind but ``putnext``, which has two levels alone.

The published data has the seeds 0, 1, 2, …: no generated game has one below :data:`FIRST_SEED`. AgentGym's lists of
train and test items are not in any package, so there is nothing to load.
"""

from __future__ import annotations

import hashlib
import random

from agentprm_core.errors import DataError
from agentprm_core.types import Game
from agentprm_core.worlds.babyai.levels import KIND_OF, LEVELS, Level, build_level
from agentprm_core.worlds.babyai.world import payload

SPLITS = ("train", "seen", "unseen")
UNSEEN = (9, 11, 14, 19, 27, 35, 38)
"""Levels of the split ``unseen``: red or blue ball, object or door, a door by its place, a thing by its place, a locked
room with distractors, one clause in small rooms, several clauses in small rooms."""
SHARED = tuple(level for level in range(1, len(LEVELS) + 1) if level not in UNSEEN)
"""Levels of ``train`` and ``seen``."""
FIRST_SEED, LAST_SEED = 1_000, 999_999

_HELD_OUT = 8
"""One maze in so many belongs to ``seen``."""
_ATTEMPTS = 1000


def published_item(index: int) -> tuple[int, int]:
    """Level and seed of AgentGym's item ``babyai_{index}``."""
    return index % len(LEVELS) + 1, index // len(LEVELS)


def generate_games(count: int, seed: int, split: str) -> list[Game]:
    """``count`` different games of ``split``, sorted by id: equal shares of its levels, but no more of a level than it
    has mazes. Some levels are so small that a hundred are all there are.

    Raises:
        DataError: no such split; no level has more different mazes; minigrid missing.
    """
    if split not in SPLITS:
        raise DataError(f"babyai: split {split!r} is not one of {', '.join(SPLITS)}")
    draw = random.Random(f"{seed} {split}")
    levels, known, games = (UNSEEN if split == "unseen" else SHARED), set(), []
    while len(games) < count:
        drawn = [_draw_game(level, split, draw, known) for level in levels[: count - len(games)]]
        games += [game for game in drawn if game]
        levels = [level for level, game in zip(levels, drawn) if game] + [*levels[len(drawn) :]]
        if not levels:
            raise DataError(f"games.{split}: BabyAI's levels have {len(games)} different mazes: ask for fewer")
    return sorted(games, key=lambda game: game.id)


def _draw_game(number: int, split: str, draw: random.Random, known: set[bytes]) -> Game | None:
    """A game of a level whose maze is not ``known``, and is from then on; None where draw after draw is."""
    for _ in range(_ATTEMPTS):
        seed = draw.randint(FIRST_SEED, LAST_SEED)
        level = build_level(number, seed)
        content = _digest(level)
        if content in known or (split != "unseen" and _split(content) != split):
            continue
        known.add(content)
        return Game(
            id=f"babyai-{number:02d}-{seed:06d}",
            world="babyai",
            split=split,
            kind=KIND_OF[number],
            goal=level.goal,
            payload=payload(number, seed),
            attributes={"level": number, "seed": seed},
        )
    return None


def _split(content: bytes) -> str:
    return "seen" if int.from_bytes(content) % _HELD_OUT == 0 else "train"


def _digest(level: Level) -> bytes:
    """Of the maze, of who stands where in it and of the mission: not of the level's number nor of its seed."""
    maze = level.things, level.kinds[: level.count], level.at, level.heading, level.carrying, level.mission_text
    return hashlib.blake2b(repr(maze).encode(), digest_size=8).digest()
