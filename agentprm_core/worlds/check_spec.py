"""What a spec says and its games hold (:mod:`agentprm_core.worlds.checking`): splits apart, kinds, what is missing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, pairwise

from agentprm_core.errors import DataError
from agentprm_core.types import Game
from agentprm_core.worlds import world_spec
from agentprm_core.worlds.base import GOAL_WORDS, OneOf, WorldSpec
from agentprm_core.worlds.check_elsewhere import games_elsewhere
from agentprm_core.worlds.check_walks import Faults
from agentprm_core.worlds.game_sources import generated_by
from agentprm_core.worlds.raised import said_of

SPLITS = ("train", "seen", "unseen")


def generated(
    spec: WorldSpec, count: int, seed: int, name: str | None = None
) -> tuple[dict[str, list[Game]], list[str]]:
    """(``count`` games of each split that can be generated, a line for each that cannot). ``name``: how another process
    finds the spec, to generate there too.

    Raises DataError where ``train`` cannot.
    """
    games = {"train": generated_by(spec, count, seed, "train")}
    lines = []
    for split in SPLITS[1:]:
        try:
            games[split] = generated_by(spec, count, seed, split)
        except DataError as error:
            lines.append(f"no games of the split {split}: {error}")
    for split, found in games.items():
        if len(found) != count:
            lines.append(f"generate({count}, {seed}, {split!r}) returns {len(found)} games")
        if generated_by(spec, count, seed, split) != found:
            lines.append(f"generate({count}, {seed}, {split!r}) returns other games the second time")
    if name is not None and not lines and not any(map(_unwritable, games["train"])):
        lines += games_elsewhere(name, [(count, seed, split) for split in games], list(games.values()))
    return games, lines


def spec_faults(spec: WorldSpec) -> Iterator[str]:
    """What the spec says with which nothing can be played, won or measured."""
    for name in ("max_turns", "expert_turns"):
        if getattr(spec, name) < 1:
            yield f"the spec's {name} is {getattr(spec, name)}: 1 or more"
    if not 0 < spec.success <= 1:
        yield f"the spec's success is {spec.success}: above 0 and at most 1, as rewards are"
    if not 0 <= spec.mixed < 1:
        yield f"the spec's mixed is {spec.mixed}: 0 or more, and less than 1"
    if spec.mixed and (spec.place is None or spec.generate_mixed is None):
        yield f"the spec's mixed is {spec.mixed}: 0, or with place and generate_mixed"
    if spec.measured_in and (fault := _measured_elsewhere(spec)):
        yield f"the spec's measured_in is {spec.measured_in!r}: {fault}"


def make_fault(spec: WorldSpec) -> str:
    """Why the spec's ``make`` makes nothing that can be played; empty where it does."""
    if not callable(spec.make):
        kind = type(spec.make).__name__
        return f"the spec's make is a {kind}, not a callable: give the class, or a function that returns a fresh world"
    try:
        world = spec.make()
    except (Exception, SystemExit) as error:  # a stranger's code may raise anything
        return f"make raised {said_of(error)}"
    needed = ("reset", "step", *(("clone",) * spec.clones), "state_key")
    lacking = [name for name in needed if not callable(getattr(world, name, None))]
    if not lacking:
        return ""
    otherwise = "; without clone, say clones=False in the spec" * ("clone" in lacking)
    what = f"the world, a {type(world).__name__}, has no {', '.join(lacking)}"
    return f"{what}: write what agentprm_core/worlds/base.py asks for{otherwise}"


def _measured_elsewhere(spec: WorldSpec) -> str:
    try:
        texts = world_spec(spec.measured_in).texts
    except DataError as error:
        return str(error)
    return "" if texts == spec.texts else f"its texts are those of {texts}, not of {spec.texts}"


def game_faults(spec: WorldSpec, games: Mapping[str, Sequence[Game]]) -> Iterator[str]:
    """What is wrong with these games, by split: of each fault the first game and how many there are."""
    faults = Faults()
    for split, found in games.items():
        ids = [game.id for game in found]
        if twice := [game_id for game_id, times in Counter(ids).items() if times > 1]:
            yield f"games of {split}: {len(twice)} ids are there more than once: {', '.join(twice[:2])}"
        if wrong := [pair for pair in pairwise(ids) if pair[0] > pair[1]]:
            before, after = wrong[0]
            yield f"games of {split} are not sorted by id, as generate must return them: {before} comes before {after}"
        for game in found:
            for what, line in _game_faults(spec, game):
                faults.add(what, f"{game.id}: {line}")
    yield from faults.said().values()
    for one, other in combinations(games, 2):
        shared = {game.payload for game in games[one]} & {game.payload for game in games[other]}
        if shared:
            yield f"{one} and {other} share {len(shared)} games (the payload {min(shared)!r:.60})"


def _game_faults(spec: WorldSpec, game: Game) -> Iterator[tuple[str, str]]:
    """(what is wrong, how)."""
    if spec.members and game.world not in spec.members:
        yield "world", f"its world is {game.world!r}, the spec's worlds are {', '.join(spec.members)}"
    elif not spec.members and game.world != spec.texts:
        yield "world", f"its world is {game.world!r}, the spec's name is {spec.texts!r}"
    own = spec.of(game)
    if game.kind not in own.kinds:
        yield "kind", f"its kind {game.kind!r} is not one of the spec's: {', '.join(own.kinds)}"
    if (reason := _unwritable(game)) is not None:
        yield "JSON", f"its attributes cannot be written as JSON: {reason}"
    if len(game.goal.split()) < GOAL_WORDS:
        yield "goal", f"its goal {game.goal!r} is not a sentence ({GOAL_WORDS} words or more)"
    for name, expected in own.attributes.items():
        value = game.attributes.get(name)
        if isinstance(expected, OneOf):
            right = value in expected.values
        else:
            right = isinstance(value, int | float) and expected.low <= value <= expected.high
        if not right:
            yield f"attribute {name}", f"its attribute {name} is {value!r}, and the spec expects {expected}"


def _unwritable(game: Game) -> str | None:
    """Why its attributes are no JSON; None where they are."""
    try:
        json.dumps(dict(game.attributes))
    except (TypeError, ValueError) as error:
        return str(error)
    return None


def missing(spec: WorldSpec) -> Iterator[str]:
    """What the spec leaves out, and what follows."""
    if not spec.clones:
        why = "agentprm_core.worlds.replay.Replayed copies a deterministic world by replaying it"
        if spec.remote:
            why = "a session of a server cannot be copied. Best-of-N by turn needs no clones"
        yield f"no clones: no beam search (evaluate.decoding, method.search); {why}"
    if spec.expert is None:
        how = "set model.source to a language model and demos.games to 0"
        yield f"no expert: nobody demonstrates, so no policy starts from scratch; {how}"
    if spec.load is None:
        yield "no published games: games.published must be null"
    if not spec.phrases:
        yield "no phrases: a tokenizer from scratch spells every sentence word by word (fine for language models)"
    if not spec.attributes and not spec.members:
        yield "no attributes: the gate of the stage games checks ids, kinds and goals alone"
