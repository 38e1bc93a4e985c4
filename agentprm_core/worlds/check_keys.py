"""Whether a world's state keys are sound, as far as plays can show (:mod:`agentprm_core.worlds.checking`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict

from agentprm_core.worlds.base import Observation
from agentprm_core.worlds.check_walks import Faults, Walk


def keys_agree(walks: Sequence[Walk], faults: Faults) -> None:
    """States of one key behave alike, and belong to one game."""
    states: dict[str, tuple[str, tuple, str]] = {}
    leads: dict[tuple[str, str], tuple[Observation, str, str]] = {}
    for walk in walks:
        for t, (seen, key) in enumerate(zip(walk.seen, walk.keys)):
            where = f"{walk.game.id}, state {t}"
            game, state, first = states.setdefault(key, (walk.game.id, seen[1:], where))
            one_game = game == walk.game.id
            faults.expect(one_game, "keys_sound", f"{where} and {first} are two games and share a key")
            alike = not one_game or state == seen[1:]
            line = f"{where} and {first} share a key and differ in commands, reward or done"
            faults.expect(alike, "keys_sound", line)
        for t, command in enumerate(walk.commands):
            found = walk.seen[t + 1], walk.keys[t + 1]
            where = f"{walk.game.id}, step {t + 1}"
            *before, first = leads.setdefault((walk.keys[t], command), (*found, where))
            line = f"{where} and {first} do {command!r} under one key and lead to different states"
            faults.expect(tuple(before) == found, "keys_sound", line)


_ELSEWHERE = """
import json, sys
from agentprm_core.types import Game
from agentprm_core.worlds import make_world
asked = json.load(sys.stdin)
world = make_world(asked["name"])
world.reset(Game(**asked["game"]))
keys = [world.state_key()]
for command in asked["commands"]:
    world.step(command)
    keys.append(world.state_key())
print(json.dumps(keys))
"""


def keys_elsewhere(name: str, walk: Walk, faults: Faults) -> None:
    """The keys of a walk in a process with another hash seed."""
    asked = {"name": name, "game": asdict(walk.game), "commands": walk.commands}
    paths = os.pathsep.join(sys.path)
    environment = os.environ | {"PYTHONHASHSEED": "12345", "PYTHONPATH": paths}
    ran = subprocess.run(
        [sys.executable, "-c", _ELSEWHERE], input=json.dumps(asked), env=environment, capture_output=True, text=True
    )
    if ran.returncode:
        said = ran.stderr.strip().splitlines()[-1]
        faults.add("deterministic", f"{walk.game.id} in another process: {said}")
    elif json.loads(ran.stdout.splitlines()[-1]) != walk.keys:
        line = f"{walk.game.id}: another process has other keys (hash() and the order of sets differ by process)"
        faults.add("keys_sound", line)
