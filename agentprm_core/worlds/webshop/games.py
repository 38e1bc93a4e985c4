"""Goals as games: published ones and those of the generated catalogue, in splits; what a game's payload says.

``unseen`` holds the goals of every sixth product, which nobody buys in ``train`` or ``seen``. ``seen`` holds a tenth of
the other goals. Who belongs where is decided by a digest, so no seed and no count can mix the splits.
"""

from __future__ import annotations

import json
import random
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path

from agentprm_core.draws import sample_of
from agentprm_core.errors import DataError
from agentprm_core.types import Game
from agentprm_core.worlds.base import UnsupportedGame
from agentprm_core.worlds.webshop.catalogue import (
    GENERATED,
    PUBLISHED,
    ROOT,
    Catalogue,
    catalogue,
    played_digest,
    published_root,
    read_products,
)
from agentprm_core.worlds.webshop.goals import NO_LIMIT, Goal, make_goals

SPLITS = ("train", "seen", "unseen")
KINDS = ("no option", "one option", "two options", "three options")
"""By the number of options that the goal names: each is a click more, and an option to read off the page."""
CATALOGUES = tuple(f"{GENERATED}-{shop}" for shop in range(12))
"""Catalogues of generated games, each with some 4,000 goals of ``train``. They need no ``WEBSHOP_DATA``."""


@dataclass(frozen=True, slots=True)
class Task:
    """What a payload says."""

    catalogue: str
    goal: Goal
    prices: dict[str, float]
    """Products whose price is not the catalogue's: what a published run drew from a range."""


def generate_games(count: int, seed: int, split: str) -> list[Game]:
    """``count`` games of generated catalogues, sorted by id. ``seed`` decides which goals of the split.

    They are drawn from the first catalogue, and from as many more as are needed to have ``count``.

    Raises DataError: an unknown split, or more games than the split has goals in all catalogues.
    """
    _known(split)
    of_split: list[tuple[str, int, Goal]] = []
    for name in CATALOGUES:
        of_split += [(name, n, goal) for n, goal in enumerate(_goals(name)) if split_of(goal) == split]
        if len(of_split) >= count:
            break
    if count > len(of_split):
        raise DataError(f"webshop: {count} games of split {split!r}, there are {len(of_split)}; lower games.{split}")
    drawn = random.Random(f"{seed} {split}").sample(of_split, count)
    games = [make_game(goal, f"webshop/{name}/{number:05d}", split, name) for name, number, goal in drawn]
    return sorted(games, key=lambda game: game.id)


def load_games(root: Path, split: str, limit: int | None) -> list[Game]:
    """The published goals of ``split``, all or a sample of ``limit``, sorted by id: their number in the published
    order. Of goals that are alike in every word there is the first.

    ``root``: as ``WEBSHOP_DATA``, which worlds read the products from when the games are played.

    Raises DataError: an unknown split, a pack that cannot be read, or one with other products than ``WEBSHOP_DATA``.
    """
    _known(split)
    goals, digest = make_goals(read_products(root)), played_digest(root)
    games: dict[str, Game] = {}
    for number, goal in enumerate(goals):
        if split_of(goal) == split:
            game = make_game(goal, f"webshop/{PUBLISHED}/{number:05d}", split, PUBLISHED, digest=digest)
            games.setdefault(game.payload, game)
    return sample_of(list(games.values()), limit)


def split_of(goal: Goal) -> str:
    """The split that a goal belongs to."""
    if _share(goal.asin) < 1 / 6:
        return "unseen"
    return "seen" if _share(f"{goal.asin} {goal.instruction}") < 1 / 10 else "train"


def make_game(
    goal: Goal,
    game_id: str,
    split: str,
    catalogue_name: str,
    prices: dict[str, float] | None = None,
    digest: str = "",
) -> Game:
    """A game of ``goal``; ``prices`` as :class:`Task` has them, ``digest`` that of published products."""
    payload = {"catalogue": catalogue_name, "goal": asdict(goal)} | ({"prices": prices} if prices else {})
    payload |= {"products": digest} if digest else {}
    wanted = len(goal.attributes) + len(goal.options) + (goal.price_upper != NO_LIMIT)
    attributes = {"catalogue": catalogue_name, "constraints": wanted, "product": goal.asin}
    kind = KINDS[min(len(goal.options), len(KINDS) - 1)]
    return Game(game_id, "webshop", split, kind, goal.instruction, json.dumps(payload, ensure_ascii=False), attributes)


def read_task(game: Game) -> tuple[Task, Catalogue]:
    """What ``game`` asks for, and its catalogue.

    Raises UnsupportedGame: a payload that is cut, published products that are others than those that the game was made
    of, or a goal of a product that is not in the catalogue.
    """
    try:
        said = json.loads(game.payload)
        goal = said["goal"]
        task = Task(
            said["catalogue"],
            Goal(
                goal["asin"], goal["instruction"], tuple(goal["attributes"]), dict(goal["options"]), goal["price_upper"]
            ),
            said.get("prices", {}),
        )
        digest = said.get("products")
    except (ValueError, KeyError, TypeError) as error:
        fault = f"lacks {error}" if isinstance(error, KeyError) else f"cannot be read ({error})"
        raise UnsupportedGame(f"webshop: game {game.id}: its payload {fault}; make the games anew") from error
    shop = catalogue(task.catalogue)
    if digest not in (None, shop.digest):
        raise UnsupportedGame(
            f"webshop: game {game.id}: it was made of other products than those at {published_root()}; "
            f"set {ROOT} to the pack that it was made of"
        )
    if task.goal.asin not in shop.number:
        raise UnsupportedGame(
            f"webshop: game {game.id}: product {task.goal.asin} is not in catalogue {task.catalogue}; "
            "make the games anew"
        )
    return task, shop


def _known(split: str) -> None:
    if split not in SPLITS:
        raise DataError(f"webshop: split {split!r} is not one of {', '.join(SPLITS)}")


@cache
def _goals(name: str) -> tuple[Goal, ...]:
    return tuple(make_goals(catalogue(name).products))


def _share(text: str) -> float:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest()) / 2**64
