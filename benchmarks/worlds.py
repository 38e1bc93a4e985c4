"""What a world costs: steps a second by random admissible commands, a clone, a state key, an episode's memory.

    python -m benchmarks.worlds --world textcraft --json

Plays ``--games`` generated games on one core. Times are CPU seconds of this process, so that other work on the machine
does not count. A step's time includes the admissible commands; an open template is filled with the word ``it``.
Memory is that of a world in mid-episode with its last observation, beyond what all episodes of a game share.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Sequence

from agentprm_core.arguments import any_seed, count
from agentprm_core.errors import EXPECTED
from agentprm_core.types import Game
from agentprm_core.worlds import WorldSpec, world_spec
from agentprm_core.worlds.base import OPEN
from agentprm_core.worlds.check_costs import episode_kilobytes
from agentprm_core.worlds.game_sources import generated_by

REPEATS = 5
"""How often each walk is played: one is too short to time."""
COPIES = 1000


def walk(spec: WorldSpec, game: Game, steps: int, seed: int) -> list[str]:
    """Random admissible commands one after the other; fewer where the episode ends."""
    rng, world, commands = random.Random(f"{seed}/{game.id}"), spec.make(), []
    seen = world.reset(game)
    while len(commands) < steps and not seen.done and seen.admissible:
        commands.append(rng.choice(seen.admissible).replace(OPEN, "it"))
        seen = world.step(commands[-1])
    return commands


def step_and_reset_seconds(
    spec: WorldSpec, games: Sequence[Game], walks: Sequence[Sequence[str]]
) -> tuple[float, float]:
    """CPU seconds a step, and a reset of a game that was played before."""
    stepping = resetting = 0.0
    world = spec.make()
    for _ in range(REPEATS):
        for game, commands in zip(games, walks):
            started = time.process_time()
            world.reset(game)
            reset = time.process_time()
            for command in commands:
                world.step(command)
            resetting += reset - started
            stepping += time.process_time() - reset
    return stepping / REPEATS / sum(map(len, walks)), resetting / REPEATS / len(games)


def clone_and_key_seconds(spec: WorldSpec, game: Game, commands: Sequence[str]) -> tuple[float, float]:
    """CPU seconds of a clone and of a state key, in the middle of an episode."""
    world = spec.make()
    world.reset(game)
    for command in commands[: len(commands) // 2]:
        world.step(command)
    started = time.process_time()
    for _ in range(COPIES):
        world.clone()
    cloned = time.process_time()
    for _ in range(COPIES):
        world.state_key()
    return (cloned - started) / COPIES, (time.process_time() - cloned) / COPIES


def measure(spec: WorldSpec, games: Sequence[Game], steps: int, seed: int) -> dict[str, float]:
    """All figures of one world; the unit is at the end of each name."""
    walks = [walk(spec, game, steps, seed) for game in games]
    step, reset = step_and_reset_seconds(spec, games, walks)
    copied = [clone_and_key_seconds(spec, game, commands) for game, commands in zip(games, walks)]
    clone, key = (sum(column) / len(games) for column in zip(*copied))
    return {
        "games": len(games),
        "steps": sum(map(len, walks)),
        "steps_per_s": round(1 / step),
        "reset_us": round(reset * 1e6, 2),
        "clone_us": round(clone * 1e6, 2),
        "state_key_us": round(key * 1e6, 2),
        "episode_kb": round(episode_kilobytes(spec.make, list(zip(games, walks))), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world", required=True, help="as env.world has it")
    parser.add_argument("--games", type=count, default=20, help="generated games to play")
    parser.add_argument("--split", default="unseen")
    parser.add_argument("--steps", type=count, default=40, help="commands a game at most")
    parser.add_argument("--seed", type=any_seed, default=0)
    parser.add_argument("--json", action="store_true", help="only the JSON line")
    asked = parser.parse_args()
    try:
        spec = world_spec(asked.world)
        games = generated_by(spec, asked.games, asked.seed, asked.split)
        figures = {"world": asked.world, **measure(spec, games, asked.steps, asked.seed)}
    except EXPECTED as error:
        sys.exit(f"worlds: {error}")
    if not asked.json:
        for name, value in figures.items():
            print(f"{name:>24} {value}")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
