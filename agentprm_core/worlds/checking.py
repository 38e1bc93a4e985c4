"""Does a world keep the contract (:mod:`agentprm_core.worlds.base`)? Plays it, and says in plain lines what is wrong.

Each game is played once at random, every other one along the expert where there is one. What was seen is then
asked for again: in a fresh world and in the same one (deterministic), and beside clones that go other ways. What cannot
be seen from outside is taken on trust: two states that always behave alike may be one.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from agentprm_core.types import Game
from agentprm_core.worlds.base import NothingLeft, WorldSpec, admits, advice_of
from agentprm_core.worlds.check_costs import Played, clone_microseconds, episode_kilobytes, steps_per_second
from agentprm_core.worlds.check_elsewhere import walk_elsewhere
from agentprm_core.worlds.check_keys import keys_agree
from agentprm_core.worlds.check_spec import make_fault
from agentprm_core.worlds.check_walks import (
    NONSENSE,
    Faults,
    clones,
    commands_do,
    plays_again,
    rewards_fall,
    untried,
    walk_game,
)

CHECKS = {
    "plays": "reset and step raise nothing",
    "observations": "text, sorted commands each once, done as a bool",
    "rewards": "in [0, 1]",
    "accepts": "every admissible command does something",
    "refuses": f"{NONSENSE!r} changes nothing",
    "deterministic": "the same actions lead to the same observations, also after a reset and in another process",
    "clones_independent": "a clone answers as the world does, and neither changes the other",
    "keys_sound": "equal keys behave alike, replays and other processes have the same keys, games share none",
    "expert": "plays without an error, and wins a game",
}
"""Each check, and what holds where it finds nothing."""


@dataclass(frozen=True)
class Report:
    """What was found. ``faults``: of each check that failed, the first place and how many there are."""

    world: str
    games: int
    steps: int
    faults: dict[str, str]
    unchecked: dict[str, str]
    """Checks that could not be made, and why."""
    expert_success: float | None
    """Share of the games that the expert won within ``expert_turns``; None without an expert."""
    expert_actions: float | None
    """The mean number of its actions in the games it won."""
    steps_per_s: float | None
    """In games that were played before. Of CPU time; on the clock where that is less than half as many, and where the
    world is remote."""
    clone_us: float | None
    episode_kb: float | None
    cpu_steps_per_s: float | None = None
    """Of CPU time, where ``steps_per_s`` is on the clock and the world is not remote."""
    notes: tuple[str, ...] = ()
    """What may be meant, and may not."""

    def holds(self, check: str) -> bool | None:
        """Whether ``check`` found nothing; None where it was not made."""
        return None if check in self.unchecked else check not in self.faults


def check_world(spec: WorldSpec, games: Sequence[Game], *, name: str | None = None, seed: int = 0) -> Report:
    """Plays ``games`` (at least one) of ``spec``. ``name``: how another process finds the spec, to compare its keys."""
    if not games:
        raise ValueError("check_world needs a game to play")
    if fault := make_fault(spec):
        others = dict.fromkeys(CHECKS.keys() - {"plays"}, "there is no world to play")
        return Report(spec.name, len(games), 0, {"plays": fault}, others, None, None, None, None, None)
    faults, unchecked = Faults(), {}
    walks = [walk_game(spec, game, random.Random(f"{seed}/{i}"), i % 2 == 1, faults) for i, game in enumerate(games)]
    commands_do(spec, walks, faults)
    unchecked |= {check: why for check, why in untried(walks) if check not in faults.said()}
    notes = Faults()
    rewards_fall(walks, notes)
    walks = [walk for walk in walks if walk.commands]
    if not walks:
        unchecked |= dict.fromkeys(("deterministic", "clones_independent", "keys_sound"), "no game could be played")
    alike = [walk for walk in walks if plays_again(spec, walk, faults)]
    if not spec.clones:
        unchecked["clones_independent"] = "the spec says clones=False"
    elif walks and not alike:
        unchecked["clones_independent"] = "no game was played twice alike"
    else:
        for i, walk in enumerate(alike):
            with faults.raised("clones_independent", f"{walk.game.id}: a clone"):
                clones(spec, walk, random.Random(f"{seed}/clones/{i}"), faults)
    keys_agree(walks, faults)
    if alike and name is not None:
        walk_elsewhere(name, alike[0], faults)
    success, actions = _expert(spec, games, faults, notes, unchecked)
    played = [(walk.game, walk.commands) for walk in alike]
    cloned = played and spec.clones and "clones_independent" not in faults.said()
    costs: dict[str, float] = {}
    if played:
        with faults.raised("plays", "played many times, it"):
            costs |= _speed(spec, played)
            if cloned:
                costs["clone_us"] = clone_microseconds(spec.make, played)
            costs["episode_kb"] = episode_kilobytes(spec.make, played)
    return Report(
        world=spec.name,
        games=len(games),
        steps=sum(len(walk.commands) for walk in walks),
        faults={check: line for check, line in faults.said().items() if check not in unchecked},
        unchecked=unchecked,
        expert_success=success,
        expert_actions=actions,
        steps_per_s=costs.get("steps_per_s"),
        clone_us=costs.get("clone_us"),
        episode_kb=costs.get("episode_kb"),
        cpu_steps_per_s=costs.get("cpu_steps_per_s"),
        notes=tuple(notes.said().values()),
    )


def _speed(spec: WorldSpec, played: Played) -> dict[str, float]:
    """What a user would see: on the clock, where a world waits for more than half of it."""
    clock = steps_per_second(spec.make, played, remote=True)
    if spec.remote:
        return {"steps_per_s": clock}
    cpu = steps_per_second(spec.make, played)
    return {"steps_per_s": clock, "cpu_steps_per_s": cpu} if cpu > 2 * clock else {"steps_per_s": cpu}


def _expert(
    spec: WorldSpec, games: Sequence[Game], faults: Faults, notes: Faults, unchecked: dict[str, str]
) -> tuple[float | None, float | None]:
    """(share of games won, mean actions of those)."""
    if spec.expert is None:
        unchecked["expert"] = "the spec has none"
        return None, None
    lengths, idle = [], Faults()
    for game in games:
        own = spec.of(game)
        with faults.raised("expert", f"{game.id}: the expert"):
            world, actions = spec.make(), 0
            seen, last = world.reset(game), None
            expert = spec.expert(world, game, 0, 0.0)
            while not seen.done and actions < own.expert_turns:
                try:
                    last = advice_of(expert, seen, last)
                except NothingLeft:
                    break
                where = f"{game.id}, step {actions + 1}"
                idle.expect(admits(seen.admissible, last), "expert", f"{where}: its {last!r} is not admissible")
                seen, actions = world.step(last), actions + 1
            if seen.reward >= own.success:
                lengths.append(actions)
    refused = idle.said().get("expert", "")
    faults.expect(bool(lengths), "expert", f"it wins none of the {len(games)} games{f'; {refused}' if refused else ''}")
    notes.expect(not (lengths and refused), "expert", f"the expert: {refused}")
    return len(lengths) / len(games), sum(lengths) / len(lengths) if lengths else None
