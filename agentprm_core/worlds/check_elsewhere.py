"""What a world says in another process, where ``hash()`` and the order of sets are others
(:mod:`agentprm_core.worlds.checking`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict

from agentprm_core.types import Game
from agentprm_core.worlds.check_walks import Faults, Walk

_MARK = "agentprm check_world: "
"""Before the line that is the answer: a stranger's module may print others."""
_WALK = f"""
import json, sys
from agentprm_core.types import Game
from agentprm_core.worlds import make_world
asked = json.load(sys.stdin)
world = make_world(asked["name"])
seen, keys = [world.reset(Game(**asked["game"]))], [world.state_key()]
for command in asked["commands"]:
    seen.append(world.step(command))
    keys.append(world.state_key())
print({_MARK!r} + json.dumps([keys, seen]))
"""
_GENERATE = f"""
import json, sys
from dataclasses import asdict
from agentprm_core.worlds import world_spec
asked = json.load(sys.stdin)
spec = world_spec(asked["name"])
print({_MARK!r} + json.dumps([[asdict(game) for game in spec.generate(*how)] for how in asked["calls"]]))
"""


def walk_elsewhere(name: str, walk: Walk, faults: Faults) -> None:
    """The observations and keys of a walk in a process with another hash seed. ``name``: how it finds the spec."""
    where = f"{walk.game.id} in another process"
    try:
        answer = _asked(_WALK, {"name": name, "game": asdict(walk.game), "commands": walk.commands})
    except ElsewhereFailed as error:
        faults.add("deterministic", f"{where}: {error}")
        return
    keys, seen = answer
    said = [list(observation) for observation in json.loads(json.dumps(walk.seen))]
    different = next((t for t, pair in enumerate(zip(seen, said, strict=True)) if pair[0] != pair[1]), None)
    if different is not None:
        then, first = seen[different][0], said[different][0]
        line = f"{where}: observation {different} was {first!r:.120} and is {then!r:.120}"
        faults.add("deterministic", f"{line} (hash() and the order of sets differ by process)")
    elif keys != walk.keys:
        line = f"{walk.game.id}: another process has other keys (hash() and the order of sets differ by process)"
        faults.add("keys_sound", line)


def games_elsewhere(name: str, calls: Sequence[tuple[int, int, str]], games: Sequence[Sequence[Game]]) -> list[str]:
    """A line for each call (count, seed, split) of ``generate`` that returns other ``games`` in another process."""
    try:
        answer = _asked(_GENERATE, {"name": name, "calls": calls})
    except ElsewhereFailed as error:
        return [f"generate in another process: {error}"]
    found = [json.loads(json.dumps([asdict(game) for game in some])) for some in games]
    return [
        f"generate({', '.join(map(repr, how))}) returns other games in another process (hash() differs by process)"
        for how, here, there in zip(calls, found, answer, strict=True)
        if here != there
    ]


class ElsewhereFailed(RuntimeError):
    """The other process could not answer; why is the message."""


def _asked(program: str, question: dict):
    """What a new Python with another hash seed answers. Raises :class:`ElsewhereFailed`."""
    environment = os.environ | {"PYTHONHASHSEED": "12345", "PYTHONPATH": os.pathsep.join(sys.path)}
    try:
        asked = json.dumps(question)
    except TypeError as error:
        raise ElsewhereFailed(f"it cannot be asked, since a game is no JSON: {error}") from error
    ran = subprocess.run([sys.executable, "-c", program], input=asked, env=environment, capture_output=True, text=True)
    answers = [line.removeprefix(_MARK) for line in ran.stdout.splitlines() if line.startswith(_MARK)]
    if not answers:
        said = ran.stderr.strip().splitlines() or [f"it ended with {ran.returncode} and said nothing"]
        raise ElsewhereFailed(said[-1])
    return json.loads(answers[0])
