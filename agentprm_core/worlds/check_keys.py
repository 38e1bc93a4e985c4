"""Whether a world's state keys are sound, as far as one process shows (:mod:`agentprm_core.worlds.checking`)."""

from __future__ import annotations

from collections.abc import Sequence

from agentprm_core.worlds.base import Observation
from agentprm_core.worlds.check_walks import Faults, Walk


def keys_agree(walks: Sequence[Walk], faults: Faults) -> None:
    """States of one key behave alike, and belong to one game."""
    states: dict[str, tuple[str, tuple, str]] = {}
    leads: dict[tuple[str, str], tuple[Observation, str, str]] = {}
    for walk in walks:
        if not all(isinstance(key, str) for key in walk.keys):
            continue  # which was said where it was seen
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
