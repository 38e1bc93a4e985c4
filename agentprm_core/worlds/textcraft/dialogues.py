"""Recorded dialogues of the published TextCraft, played against this engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agentprm_core.worlds.dialogues import Report
from agentprm_core.worlds.textcraft.engine import TextCraft
from agentprm_core.worlds.textcraft.pack import find_pack
from agentprm_core.worlds.textcraft.published import published_game


def check(records: Iterable[Mapping]) -> Report:
    """Plays each record's game anew and compares text, reward and end of every step; of a start and of a dialogue also
    the first observation and the depth of the goal.

    Raises DataError where the recipes are not to be found.
    """
    pack, world = find_pack(), TextCraft()
    dialogues = compared = mismatches = 0
    first = None
    for record in records:
        game = published_game(record, pack, "check")
        steps = record.get("steps", [])
        dialogues += "steps" in record
        opening = {"observation": world.reset(game).text, "depth": game.attributes["depth"]}
        pairs = [(None, {name: record.get(name) for name in opening}, opening)]
        for step in steps:
            seen = world.step(step["action"])
            found = {"observation": seen.text, "reward": seen.reward, "done": seen.done}
            pairs.append((step["action"], {name: step.get(name) for name in found}, found))
        for number, (action, expected, found) in enumerate(pairs):
            compared += 1
            mismatches += expected != found
            if expected != found and first is None:
                first = {"id": record["id"], "step": number, "action": action, "expected": expected, "found": found}
    return Report(dialogues, compared, mismatches, first)
