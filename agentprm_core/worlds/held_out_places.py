"""Which places the training games are of; the places that generators keep for ``unseen`` are never among them.

PRMs are judged in such places too, on guard games: other games than those of ``unseen``, which policies are measured
on."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from agentprm_core.errors import DataError
from agentprm_core.seeding import episode_seed
from agentprm_core.types import Game
from agentprm_core.worlds.base import WorldSpec
from agentprm_core.worlds.game_sources import generated_by, loaded_by, mixed_by

GUARDS = 200
"""Guard games, at most."""


def games_by_place(
    spec: WorldSpec, root: Path, counts: Mapping[str, int], generated: int, seed: int, mixed: int = 0
) -> dict[str, list[Game]]:
    """Split → its games, sorted by id: ``counts[split]`` of them, ``generated`` of train's by the world's generator and
    ``mixed`` of train's in places that are put together from several places of training.

    Published training games of places that the generator keeps for ``unseen`` are ``unseen``. ``train`` is the others
    and generated games of the same places, ``seen`` the published ones of that name in these places. So nothing of a
    place of ``unseen``, and of any place that the published training games lack, is ever played in training.

    Raises DataError for a world whose games have no places, or cannot be mixed, or that has fewer games than are asked
    for.
    """
    place = spec.place
    if spec.load is None or place is None:
        raise DataError(f"games.published: {spec.name} has no published games by place: give the folder alone, or null")
    if mixed and spec.generate_mixed is None:
        raise DataError(f"games.published.mixed: the places of {spec.name} cannot be mixed: 0 is what it can have")
    train, seen = (loaded_by(spec, root, spec.published_splits[split], None) for split in ("train", "seen"))
    trained = [game for game in train if game.attributes[place] not in spec.new_places]
    places = {game.attributes[place] for game in trained}
    drawn = _some(trained, counts["train"] - generated - mixed, "train", seed)
    drawn += _generated(spec, place, places, generated, seed)
    if mixed:
        drawn += mixed_by(spec, mixed, seed, places)
    found = {
        "train": drawn,
        "seen": _some([game for game in seen if game.attributes[place] in places], counts["seen"], "seen", seed),
        "unseen": _some(
            [replace(game, split="unseen") for game in train if game.attributes[place] in spec.new_places],
            counts["unseen"],
            "unseen",
            seed,
        ),
    }
    return {split: sorted(games, key=lambda game: game.id) for split, games in found.items()}


def generated_games(spec: WorldSpec, count: int, seed: int, split: str) -> list[Game]:
    """``count`` games of a split by the world's generator, sorted by id.

    The share ``spec.mixed`` of train's has places that are put together from several places of the others.
    """
    place = spec.place
    mixed = round(spec.mixed * count) if split == "train" else 0
    plain = generated_by(spec, count - mixed, seed, split)
    if mixed == 0 or place is None or spec.generate_mixed is None:
        return plain
    places = {game.attributes[place] for game in plain}
    return sorted(plain + mixed_by(spec, mixed, seed, places), key=lambda game: game.id)


def guard_games(spec: WorldSpec, count: int, seed: int, others: Collection[Game]) -> list[Game]:
    """``count`` generated games like those of ``unseen``, sorted by id, to judge PRMs on: nothing is trained or
    reported on them.

    Fewer where the generator makes games that are among the ``others`` of the campaign, or in places of its training
    games.
    """
    if not count:
        return []
    ids, payloads = ({getattr(game, name) for game in others} for name in ("id", "payload"))
    trained = {game.attributes[spec.place] for game in others if game.split == "train"} if spec.place else set()
    found = generated_by(spec, count, episode_seed(seed, "guard") % 2**31, "unseen")
    return [
        game
        for game in found
        if game.id not in ids
        and game.payload not in payloads
        and (spec.place is None or game.attributes[spec.place] not in trained)
    ]


def _some(games: Sequence[Game], count: int, split: str, seed: int) -> list[Game]:
    if count < 0:
        raise DataError(f"games.train: {-count} fewer than games.published.generated and mixed, which are among them")
    if len(games) < count:
        raise DataError(
            f"games.{split}: {count} published games asked for, there are {len(games)} in places of {split}"
        )
    return random.Random(seed).sample(sorted(games, key=lambda game: game.id), count)


def _generated(spec: WorldSpec, place: str, places: set, count: int, seed: int) -> list[Game]:
    """``count`` generated games of train in ``places``."""
    asked, found = count, []
    while len(found) < count:
        asked += asked // 8 + 8
        found = [game for game in generated_by(spec, asked, seed, "train") if game.attributes[place] in places]
    return random.Random(seed).sample(found, count)
