"""Published games with generated ones beside them; the places that generators keep for ``unseen`` are in neither."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from agentprm_core.errors import DataError
from agentprm_core.types import Game
from agentprm_core.worlds.base import WorldSpec


def games_by_place(
    spec: WorldSpec, root: Path, counts: Mapping[str, int], generated: int, seed: int
) -> dict[str, list[Game]]:
    """Split → its games, sorted by id: ``counts[split]`` of them, ``generated`` of train's by the world's generator.

    Published training games of places that the generator keeps for ``unseen`` are ``unseen``. ``train`` is the others
    and generated games of the same places, ``seen`` the published ones of that name in these places. So nothing of a
    place of ``unseen``, and of any place that the published training games lack, is ever played in training.

    Raises DataError for a world whose games have no places, or that has fewer games than are asked for.
    """
    if spec.load is None or spec.place is None:
        raise DataError(f"games.published: {spec.name} has no published games by place: give the folder alone, or null")
    ours = {
        split: spec.load(root, theirs, None) for split, theirs in spec.published_splits.items() if split != "unseen"
    }
    trained = [game for game in ours["train"] if not _new(spec, game)]
    found = {
        "train": _some(trained, counts["train"] - generated, "train", seed)
        + _generated(spec, trained, generated, seed),
        "seen": _some([game for game in ours["seen"] if not _new(spec, game)], counts["seen"], "seen", seed),
        "unseen": [
            replace(game, split="unseen")
            for game in _some([game for game in ours["train"] if _new(spec, game)], counts["unseen"], "unseen", seed)
        ],
    }
    return {split: sorted(games, key=lambda game: game.id) for split, games in found.items()}


def _new(spec: WorldSpec, game: Game) -> bool:
    return game.attributes[spec.place] in spec.new_places


def _some(games: Sequence[Game], count: int, split: str, seed: int) -> list[Game]:
    if count < 0:
        raise DataError(f"games.train: {-count} fewer than games.published.generated, which are among them")
    if len(games) < count:
        raise DataError(
            f"games.{split}: {count} published games asked for, there are {len(games)} in places of {split}"
        )
    return random.Random(seed).sample(sorted(games, key=lambda game: game.id), count)


def _generated(spec: WorldSpec, trained: Sequence[Game], count: int, seed: int) -> list[Game]:
    """``count`` generated games of train in the places of ``trained``."""
    places = {game.attributes[spec.place] for game in trained}
    asked, found = count, []
    while len(found) < count:
        asked += asked // 8 + 8
        found = [game for game in spec.generate(asked, seed, "train") if game.attributes[spec.place] in places]
    return random.Random(seed).sample(found, count)
