"""Recorded dialogues of the published TextCraft, played against this engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from agentprm_core.worlds.dialogues import Compared, Report, tally
from agentprm_core.worlds.textcraft.engine import TextCraft
from agentprm_core.worlds.textcraft.pack import find_pack, look_beside
from agentprm_core.worlds.textcraft.published import published_game

__all__ = ["check", "look_beside"]


def check(records: Sequence[dict]) -> Report:
    """Plays each record's game anew and compares text, reward and end of every step; of a start and of a dialogue also
    the first observation and the depth of the goal.

    Raises DataError where the recipes are not to be found, and for a record that is not TextCraft's.
    """
    pack, world = find_pack(), TextCraft()
    return tally(records, lambda record: _compared(record, pack, world), lambda record: "steps" in record)


def _compared(record: dict, pack: Path, world: TextCraft) -> Iterator[Compared]:
    game = published_game(record, pack, "check")
    opening = {"observation": world.reset(game).text, "depth": game.attributes["depth"]}
    yield 0, None, {name: record.get(name) for name in opening}, opening
    for number, step in enumerate(record.get("steps", []), 1):
        seen = world.step(step["action"])
        found = {"observation": seen.text, "reward": seen.reward, "done": seen.done}
        yield number, step["action"], {name: step.get(name) for name in found}, found
