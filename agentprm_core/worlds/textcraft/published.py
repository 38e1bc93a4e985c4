"""The published starts of TextCraft as games: ADaPT's 200 and AgentGym's 544, frozen as they were recorded.

The lines of a first observation are shuffled by the published environments and differ from run to run, so they are
read from the records and not made anew. AgentGym's own lists of training and test items are not public: its goals are
dealt by the digest of their names.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

from agentprm_core.draws import sample_of
from agentprm_core.errors import DataError
from agentprm_core.types import Game
from agentprm_core.worlds.base import NoSplit
from agentprm_core.worlds.textcraft.compiled import VARIANTS, write_game
from agentprm_core.worlds.textcraft.pack import find_pack, load_book
from agentprm_core.worlds.textcraft.recipes import spoken, write_book

RECORDS = "textcraft_dialogues.jsonl.xz"
SPLITS = ("adapt", "agentgym", "agentgym-test", "agentgym-train")
TEST_GOALS = 100
"""As many as AgentGym's test list has."""
_OPENING, _GOAL = "Crafting commands:\n", "\n\nGoal: craft "


def load_published(root: Path, split: str, limit: int | None = None) -> list[Game]:
    """The published games of a split, sorted by id: all, or a sample of ``limit``.

    ``root``: the folder with the recipes and the records, or the archive of recipes, beside which the records are.

    ``adapt``: the 200 starts of the authors' run. ``agentgym``: a start for each of the 544 goals.
    ``agentgym-test``: 100 of these. ``agentgym-train``: those whose goal is in neither ``agentgym-test`` nor ``adapt``.

    Raises NoSplit for an unknown split, and DataError where the recipes or the records are missing or broken.
    """
    if split not in SPLITS:
        raise NoSplit(f"TextCraft has no published split {split!r}: take one of {', '.join(SPLITS)}", SPLITS)
    pack = find_pack(root)
    records = read_records((pack.parent if pack == root else root) / RECORDS)
    starts = [each for each in records if each.get("kind") == "start"]
    variant = split.partition("-")[0]
    mine = [each for each in starts if each["variant"] == variant]
    if split != variant:
        test = set(sorted({each["goal"] for each in mine}, key=_deal)[:TEST_GOALS])
        known = {each["goal"] for each in starts if each["variant"] == "adapt"} | test
        of_test = split == "agentgym-test"
        mine = [each for each in mine if (each["goal"] in test if of_test else each["goal"] not in known)]
    return sample_of([published_game(each, pack, split) for each in mine], limit)


def published_game(record: Mapping, pack: Path, split: str) -> Game:
    """The game of a recorded start or dialogue. Raises DataError for a record of another shape or an unknown goal."""
    try:
        goal, variant, observation = record["goal"].removeprefix("minecraft:"), record["variant"], record["observation"]
        lines, _, _ = observation.removeprefix(_OPENING).partition(_GOAL)
        game_id = f"textcraft/{record['id']}"
    except (KeyError, TypeError, AttributeError) as error:
        what = f"no record of a start: {error!r} in {str(record)[:80]!r}"
        raise DataError(f"TextCraft: {what}; take the whole of {RECORDS}") from error
    if variant not in VARIANTS:
        raise DataError(f"{game_id}: the variant {variant!r} is not one of {', '.join(VARIANTS)}")
    book = load_book(pack, variant)
    depth = book.depth(goal)
    if not depth:
        raise DataError(f"{game_id}: no recipe of {pack} makes the goal {goal!r}: take the whole pack")
    payload = write_game(goal, variant, lines.split("\n"), _text(pack, variant))
    attributes = {"source": "published", "depth": depth, "recipe_count": lines.count("\n") + 1}
    return Game(game_id, "textcraft", split, f"depth_{depth}", f"Craft {spoken(goal)}.", payload, attributes)


def read_records(path: Path) -> list[dict]:
    """The records of a file of JSON lines (.xz). Raises DataError for one that is missing, cut off or broken."""
    try:
        with lzma.open(path, "rt") as lines:
            return [json.loads(line) for line in lines]
    except FileNotFoundError as error:
        raise DataError(f"{path}: no records of TextCraft's starts: put {RECORDS} beside the recipes") from error
    except (lzma.LZMAError, EOFError, ValueError) as error:
        raise DataError(f"{path}: the records are cut off or broken ({error}): copy the file again") from error


def _deal(goal: str) -> bytes:
    return blake2b(goal.encode(), digest_size=8).digest()


@lru_cache(maxsize=4)
def _text(pack: Path, variant: str) -> str:
    return write_book(load_book(pack, variant))
