"""What a spec says and its games hold (:mod:`agentprm_core.worlds.checking`): splits apart, kinds, what is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from agentprm_core.errors import DataError
from agentprm_core.types import Game
from agentprm_core.worlds.base import OneOf, WorldSpec

SPLITS = ("train", "seen", "unseen")


def generated(spec: WorldSpec, count: int, seed: int) -> tuple[dict[str, list[Game]], list[str]]:
    """(``count`` games of each split that can be generated, a line for each that cannot).

    Raises DataError where ``train`` cannot.
    """
    games = {"train": spec.generate(count, seed, "train")}
    lines = []
    for split in SPLITS[1:]:
        try:
            games[split] = spec.generate(count, seed, split)
        except DataError as error:
            lines.append(f"no games of the split {split}: {error}")
    for split, found in games.items():
        if len(found) != count:
            lines.append(f"generate({count}, {seed}, {split!r}) returns {len(found)} games")
        if spec.generate(count, seed, split) != found:
            lines.append(f"generate({count}, {seed}, {split!r}) returns other games the second time")
    return games, lines


def game_faults(spec: WorldSpec, games: Mapping[str, Sequence[Game]]) -> Iterator[str]:
    """What is wrong with these games, by split."""
    for split, found in games.items():
        ids = [game.id for game in found]
        if ids != sorted(set(ids)):
            yield f"games of {split} are not sorted by id, each once"
        for game in found:
            yield from (f"{game.id}: {line}" for line in _game_faults(spec, game))
    for one, other in combinations(games, 2):
        shared = {game.payload for game in games[one]} & {game.payload for game in games[other]}
        if shared:
            yield f"{one} and {other} share {len(shared)} games (the payload {min(shared)!r:.60})"


def _game_faults(spec: WorldSpec, game: Game) -> Iterator[str]:
    if game.world != spec.name:
        yield f"its world is {game.world!r}, the spec's name is {spec.name!r}"
    if game.kind not in spec.kinds:
        yield f"its kind {game.kind!r} is not one of the spec's: {', '.join(spec.kinds)}"
    if len(game.goal.split()) < 3:
        yield f"its goal {game.goal!r} is not a sentence (three words or more)"
    for name, expected in spec.attributes.items():
        value = game.attributes.get(name)
        if isinstance(expected, OneOf):
            right = value in expected.values
        else:
            right = isinstance(value, int | float) and expected.low <= value <= expected.high
        if not right:
            yield f"its attribute {name} is {value!r}, and the spec expects {expected}"


def missing(spec: WorldSpec) -> Iterator[str]:
    """What the spec leaves out, and what follows."""
    if not spec.clones:
        yield (
            "no clones: no beam search (evaluate.decoding, method.search); "
            "agentprm_core.worlds.replay.Replayed copies a deterministic world by replaying it"
        )
    if spec.expert is None:
        yield "no expert: nobody demonstrates, so no policy starts from scratch; set model.source to a language model"
    if spec.load is None:
        yield "no published games: games.published must be null"
    if not spec.phrases:
        yield "no phrases: a tokenizer from scratch spells every sentence word by word (fine for language models)"
    if not spec.attributes:
        yield "no attributes: the gate of the stage games checks ids, kinds and goals alone"
