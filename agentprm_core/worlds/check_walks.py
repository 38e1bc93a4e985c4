"""Plays a world for its check (:mod:`agentprm_core.worlds.checking`): once, once more, beside clones.

What was first seen in an episode is a :class:`Walk`; all later plays are compared with it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import cast

from agentprm_core.types import Game
from agentprm_core.worlds.base import (
    OPEN,
    Expert,
    NothingLeft,
    Observation,
    World,
    WorldSpec,
    admits,
    advice_of,
    is_reward,
    observation_fault,
)
from agentprm_core.worlds.raised import said_of
from agentprm_core.worlds.replay import Replayed

NONSENSE = "xyzzy the plugh"
"""A command that no world knows."""

_MISTAKES = 0.3
"""The share of random commands where the expert plays."""
_NONSENSE_SHARE = 0.1


@dataclass
class Walk:
    """One episode as it was first seen: command i leads from state i to state i + 1."""

    game: Game
    seen: list[Observation] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    advised: int = 0
    """How many of the commands are the expert's."""
    replayed: bool = False
    """Whether its world is copied by replay."""


class Faults:
    """What was found, by check."""

    def __init__(self) -> None:
        self._found: dict[str, list[str]] = {}

    def add(self, check: str, line: str) -> None:
        self._found.setdefault(check, []).append(line)

    def expect(self, right: bool, check: str, line: str) -> None:
        if not right:
            self.add(check, line)

    @contextmanager
    def raised(self, check: str, where: str) -> Iterator[None]:
        try:
            yield
        except (Exception, SystemExit) as error:  # a stranger's world may raise anything: that is the finding
            self.add(check, f"{where} raised {said_of(error)}")

    def said(self) -> dict[str, str]:
        return {
            check: lines[0] + f" (and {len(lines) - 1} more)" * (len(lines) > 1) for check, lines in self._found.items()
        }


def walk_game(spec: WorldSpec, game: Game, rng: random.Random, guided: bool, faults: Faults) -> Walk:
    """The first play of ``game``, along the expert where it is ``guided``, or where the world lists no commands to
    draw from. It ends where the world raises."""
    walk = Walk(game)
    with faults.raised("plays", f"{game.id}: reset"):
        world = spec.make()
        walk.replayed = isinstance(world, Replayed)
        first = world.reset(game)
        if _is_observation(first, f"{game.id}, after reset", faults):
            walk.keys.append(world.state_key())
            walk.seen.append(first)
    if not walk.seen:
        return walk
    _look(walk, faults)
    faults.expect(not walk.seen[0].done, "plays", f"{game.id} is done at reset: nothing can be played")
    expert = done = None
    if spec.expert and (guided or not walk.seen[0].admissible):
        with faults.raised("expert", f"{game.id}: the expert"):
            expert = spec.expert(world, game, 0, 0.0)
    while not walk.seen[-1].done and len(walk.commands) < spec.turns(game, spec.max_turns):
        seen, command = walk.seen[-1], None
        if expert is not None:
            command = _advice(expert, seen, done, game, faults)
            expert = expert if command is not None else None
        advised = command is not None
        if command is None or rng.random() < _MISTAKES:
            advised = False
            command = NONSENSE if seen.admissible and rng.random() < _NONSENSE_SHARE else _choose(rng, walk)
        done, answer = command, None
        with faults.raised("plays", f"{game.id}, step {len(walk.commands) + 1} ({command!r}):"):
            answer = world.step(command), world.state_key()
        if answer is None or not _is_observation(answer[0], f"{game.id}, after {command!r}", faults):
            return walk
        walk.commands.append(command)
        walk.advised += advised
        walk.seen.append(answer[0])
        walk.keys.append(answer[1])
        _look(walk, faults)
    return walk


def _advice(expert: Expert, seen: Observation, done: str | None, game: Game, faults: Faults) -> str | None:
    """What the expert would do; None where it gives up or fails."""
    with faults.raised("expert", f"{game.id}: the expert"):
        try:
            return advice_of(expert, seen, done)
        except NothingLeft:
            return None
    return None


def _choose(rng: random.Random, walk: Walk) -> str:
    """A command that is admissible now: a template is filled with a word of the first text."""
    words = walk.seen[0].text.split() or ["word"]
    listed = walk.seen[-1].admissible
    command = rng.choice(listed) if listed else " ".join(rng.choices(words, k=3))
    while OPEN in command:
        command = command.replace(OPEN, rng.choice(words).replace(OPEN, "word"), 1)
    return command


def _is_observation(seen: object, where: str, faults: Faults) -> bool:
    """Whether it is one that a play goes on with: of the right types, and equal to itself."""
    fault = observation_fault(seen)
    faults.expect(not fault, "observations", f"{where}: {fault}")
    if fault:
        return False
    reward = cast(Observation, seen).reward
    is_number = reward == reward  # no comparison with one that is not holds
    faults.expect(is_number, "rewards", f"{where}: the reward is not a number")
    return is_number


def _look(walk: Walk, faults: Faults) -> None:
    """Whether the last observation is one as the contract has it."""
    seen = walk.seen[-1]
    where = f"{walk.game.id}, " + (f"after {walk.commands[-1]!r}" if walk.commands else "after reset")
    listed = seen.admissible
    in_order = list(listed) == sorted(set(listed))
    faults.expect(in_order, "observations", f"{where}: admissible must be sorted, each once: {listed!r:.80}")
    faults.expect(isinstance(seen.done, bool), "observations", f"{where}: done is {seen.done!r}, not a bool")
    faults.expect(is_reward(seen.reward), "rewards", f"{where}: the reward {seen.reward!r} is not in [0, 1]")
    key = walk.keys[-1]
    faults.expect(isinstance(key, str), "keys_sound", f"{where}: state_key is {key!r}, not a string")


def commands_do(spec: WorldSpec, walks: Sequence[Walk], faults: Faults) -> None:
    """Whether the commands did what their being listed, or not, says."""
    longest = max((len(walk.commands) for walk in walks), default=0)
    for walk in walks:
        for t, command in enumerate(walk.commands, start=1):
            # a server ends an episode at a number of turns of its own, whatever is done in the last one
            _does(walk, t, command, spec.remote and t == longest, faults)


def _does(walk: Walk, t: int, command: str, cut_off: bool, faults: Faults) -> None:
    before, after = walk.seen[t - 1], walk.seen[t]
    where = f"{walk.game.id}, step {t}: {command!r}"
    if not admits(before.admissible, command):
        if cut_off:
            before = before._replace(done=after.done)
        same = before[1:] == after[1:]
        faults.expect(same, "refuses", f"{where} is not admissible and changes commands, reward or done")
        # a replayed world counts its actions: its keys are finer than its states, and say so
        kept = walk.replayed or walk.keys[t] == walk.keys[t - 1]
        faults.expect(kept, "keys_sound", f"{where} changes nothing, and the key is another")
    elif command in before.admissible:
        refused = after.text.startswith("Nothing happens")
        faults.expect(not refused, "accepts", f"{where} is listed as admissible, and {after.text!r:.80} is the reply")


def untried(walks: Sequence[Walk]) -> Iterator[tuple[str, str]]:
    """(check, why) of those that nothing in the walks could have failed."""
    done = [(walk.seen[t].admissible, command) for walk in walks for t, command in enumerate(walk.commands)]
    if not any(walk.seen for walk in walks):
        yield from ((check, "nothing was seen") for check in ("observations", "rewards"))
    if not done:
        yield from ((check, "no step was made") for check in ("accepts", "refuses"))
        return
    if not any(command in listed for listed, command in done):
        listed = {command for listed, _ in done for command in listed}
        only = "no commands are listed" + " but templates" * bool(listed)
        if not all(OPEN in command for command in listed):
            only = "no command that is listed was done"
        tried = f"{len(done)} texts were tried, {sum(walk.advised for walk in walks)} of them the expert's"
        yield "accepts", f"{only}; {tried}"
    if all(admits(listed, command) for listed, command in done):
        why = "so few steps did not come to it: check more games"
        yield (
            "refuses",
            why if any(listed for listed, _ in done) else "no commands are listed, so any text is an action",
        )


def rewards_fall(walks: Sequence[Walk], notes: Faults) -> None:
    """Where an episode has earned less than before: a world may take back what it paid, and may mean a step's own."""
    for walk in walks:
        for t, (before, after) in enumerate(pairwise(walk.seen), start=1):
            numbers = isinstance(before.reward, float | int) and isinstance(after.reward, float | int)
            if numbers and after.reward < before.reward:
                what = f"the reward falls from {before.reward:.3g} to {after.reward:.3g}"
                why = "It is what the episode has earned so far, not what the step earned"
                notes.add("rewards", f"{walk.game.id}, step {t} ({walk.commands[t - 1]!r}): {what}. {why}")


def plays_again(spec: WorldSpec, walk: Walk, faults: Faults) -> bool:
    """Whether the walk can be had again, in a fresh world and in that world once more."""
    world, alike = spec.make(), False
    with faults.raised("deterministic", f"{walk.game.id}: played again, it"):
        alike = all(
            _same(walk, t, seen, key, f"in {place}", "deterministic", faults)
            for place in ("a fresh world", "the same world after a reset")
            for t, seen, key in _again(world, walk)
        )
    return alike


def _again(world: World, walk: Walk) -> Iterator[tuple[int, Observation, str]]:
    yield 0, world.reset(walk.game), world.state_key()
    for t, command in enumerate(walk.commands, start=1):
        yield t, world.step(command), world.state_key()


def _same(walk: Walk, t: int, seen: Observation, key: str, place: str, check: str, faults: Faults) -> bool:
    where = f"{walk.game.id}, " + (f"step {t} ({walk.commands[t - 1]!r})" if t else "reset") + f" {place}"
    if seen != walk.seen[t]:
        name = next(n for n in Observation._fields if getattr(seen, n) != getattr(walk.seen[t], n))
        first, then = getattr(walk.seen[t], name), getattr(seen, name)
        faults.add(check, f"{where}: {name} was {first!r:.120} and is now {then!r:.120}")
    elif key != walk.keys[t]:
        faults.add("keys_sound", f"{where}: the state is the same and the key is another")
    return seen == walk.seen[t]


def clones(spec: WorldSpec, walk: Walk, rng: random.Random, faults: Faults) -> None:
    """Play the walk again; at each state one clone goes another way, one goes the same way, one waits for the end."""
    world, check = spec.make(), "clones_independent"
    world.reset(walk.game)
    waiting = []
    for t, command in enumerate(walk.commands, start=1):
        where, key = f"{walk.game.id}, before step {t} ({command!r})", world.state_key()
        other, twin, late = world.clone(), world.clone(), world.clone()
        faults.expect(twin.state_key() == key, check, f"{where}: the clone's key is another")
        at = Walk(walk.game, [walk.seen[0], walk.seen[t - 1]])
        for _ in range(2):
            at.seen.append(other.step(_choose(rng, at)))
            if at.seen[-1].done:
                break
        faults.expect(world.state_key() == key, check, f"{where}: steps of a clone change the world's key")
        _same(walk, t, twin.step(command), twin.state_key(), "in a clone", check, faults)
        _same(walk, t, world.step(command), world.state_key(), "after a clone went another way", check, faults)
        faults.expect(late.state_key() == key, check, f"{where}: steps of the world change a clone's key")
        waiting.append((t, late))
    for t, late in waiting:
        place = "in a clone, after the world had gone on"
        _same(walk, t, late.step(walk.commands[t - 1]), late.state_key(), place, check, faults)
