"""Recorded dialogues of AgentGym's BabyAI against our world: replies, rewards, ends and scores must be the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agentprm_core.types import Game
from agentprm_core.worlds.babyai.levels import LEVELS, make_level
from agentprm_core.worlds.babyai.world import BabyAI, payload
from agentprm_core.worlds.base import UnsupportedGame
from agentprm_core.worlds.dialogues import Compared, Report, tally

FINISHED = "The task with environment 0 has finished."


def check(records: Sequence[dict]) -> Report:
    """Play every record. Raises DataError for one that is not BabyAI's."""
    return tally(records, _compared, lambda record: True)


def _compared(record: dict) -> Iterator[Compared]:
    """(number of the step, 0 at reset; action; what was recorded; what we say) of every reply."""
    number, seed, steps = record["level"], record["seed"], record["steps"]
    start = {key: record[key] for key in ("observation", "reward", "done", "mission", "goal", "max_steps", "env_id")}
    try:
        make_level(number, seed)
    except UnsupportedGame as error:  # what resetting says of it is for games, not for records
        raise ValueError(error) from error
    world = BabyAI()
    world.reset(Game(record["id"], "babyai", "recorded", "", "", payload(number, seed)))
    level = world.maze.level
    yield (
        *(0, None, start),
        {
            "observation": f"Your goal: {level.goal}\n{world.published()}",
            "reward": world.reward,
            "done": world.done,
            "mission": level.mission_text,
            "goal": level.goal,
            "max_steps": level.max_steps,
            "env_id": f"BabyAI-{LEVELS[number - 1]}-v0",
        },
    )
    score = 0.0
    for i, step in enumerate(steps, 1):
        expected = {key: value for key, value in step.items() if key not in ("action", "source")}
        if world.done:
            yield i, step["action"], expected, {"error": FINISHED}
            continue
        world.step(step["action"])
        score += world.reward
        found = {"observation": world.published(), "reward": world.reward, "done": world.done, "score": score}
        yield i, step["action"], expected if "error" in expected else {"score": expected["reward"], **expected}, found
