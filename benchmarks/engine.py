"""What the fast engine costs beside TextWorld: the same games, the same commands, one core, one run.

    python -m benchmarks.engine --games DIR --split valid_seen --limit 10 --json

Compiles the whole split (and reads it back from a cache), then plays ``--limit`` games, spread evenly over the split,
for ``--steps`` commands each on both engines. Times are CPU seconds of this process, so that other work on the machine
counts for neither side. The last line printed is a JSON object; times are in the unit their name ends in.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from agentprm_core.arguments import any_seed, count
from agentprm_core.types import Game
from agentprm_core.worlds import World, make_world
from agentprm_core.worlds.alfworld.compile import compile_game
from agentprm_core.worlds.alfworld.compiled_cache import compile_games
from agentprm_core.worlds.alfworld.engine import FastWorld
from agentprm_core.worlds.alfworld.games import load_games
from agentprm_core.worlds.check_costs import episode_kilobytes
from benchmarks.engine_parity import random_command

REPEATS = 20
"""How often the fast engine plays each walk: one is too short to time."""


def walk(game: Game, steps: int, seed: int) -> list[str]:
    """Random commands that make sense one after the other, as :mod:`benchmarks.engine_parity` plays them."""
    rng = random.Random(f"{seed}/{game.id}")
    world, seen, commands = FastWorld(), [], []
    shown = world.reset(game)
    for _ in range(steps):
        seen += sorted(set(shown.admissible) - set(seen))
        commands.append(random_command(rng, shown, seen))
        shown = world.step(commands[-1])
    return commands


def step_seconds(world: World, game: Game, commands: Sequence[str], repeats: int) -> float:
    """CPU seconds a step, admissible commands included."""
    spent = 0.0
    for _ in range(repeats):
        world.reset(game)
        started = time.process_time()
        for command in commands:
            world.step(command)
        spent += time.process_time() - started
    return spent / repeats / len(commands)


def load_reset_seconds(engine: str, game: Game) -> float:
    """CPU seconds from a game's text to its first observation, in a process that has never seen it."""
    world = make_world(engine)
    started = time.process_time()
    world.reset(compile_game(game) if engine == "alfworld" else game)
    return time.process_time() - started


def clone_and_key_seconds(world: FastWorld, repeats: int) -> tuple[float, float]:
    started = time.process_time()
    for _ in range(repeats):
        world.clone()
    cloned = time.process_time()
    for _ in range(repeats):
        world.state_key()
    return (cloned - started) / repeats, (time.process_time() - cloned) / repeats


def compile_seconds(games: Sequence[Game]) -> tuple[float, float]:
    """CPU seconds to compile all ``games`` and write the cache, and to read them from it."""
    with tempfile.TemporaryDirectory() as folder:
        seconds = []
        for _ in range(2):
            started = time.process_time()
            compile_games(games, Path(folder))
            seconds.append(time.process_time() - started)
    return seconds[0], seconds[1]


def main() -> None:
    args = _arguments()
    split = load_games(args.games, args.split)
    compile_s, cached_compile_s = compile_seconds(split)
    games = split[:: max(1, len(split) // args.limit)][: args.limit]
    walks = [walk(game, args.steps, args.seed) for game in games]
    totals = dict.fromkeys(("fast_step", "textworld_step", "fast_load", "textworld_load", "clone", "key"), 0.0)
    for game, commands in tqdm(list(zip(games, walks)), disable=None):
        fast, reference = FastWorld(), make_world("alfworld-textworld")
        totals["fast_load"] += load_reset_seconds("alfworld", game)
        totals["textworld_load"] += load_reset_seconds("alfworld-textworld", game)
        totals["fast_step"] += step_seconds(fast, game, commands, REPEATS)
        totals["textworld_step"] += step_seconds(reference, game, commands, 1)
        clone, key = clone_and_key_seconds(fast, 1000)
        totals["clone"] += clone
        totals["key"] += key
    means = {name: total / len(games) for name, total in totals.items()}
    report = {
        **{"split": args.split, "games": len(games), "steps_a_game": args.steps, "compiled_games": len(split)},
        "step_speedup": round(means["textworld_step"] / means["fast_step"]),
        "step_us": round(means["fast_step"] * 1e6, 2),
        "textworld_step_ms": round(means["textworld_step"] * 1e3, 1),
        "load_reset_speedup": round(means["textworld_load"] / means["fast_load"]),
        "load_reset_ms": round(means["fast_load"] * 1e3, 2),
        "textworld_load_reset_ms": round(means["textworld_load"] * 1e3, 1),
        "compile_s": round(compile_s, 2),
        "cached_compile_s": round(cached_compile_s, 2),
        "clone_us": round(means["clone"] * 1e6, 2),
        "state_key_us": round(means["key"] * 1e6, 2),
        "episode_kb": round(episode_kilobytes(FastWorld, list(zip(games, walks))), 2),
    }
    if not args.json:
        for name, value in report.items():
            print(f"{name:>24} {value}")
    print(json.dumps(report))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", type=Path, required=True, help="the folder that holds json_2.1.1")
    parser.add_argument("--split", default="valid_seen")
    parser.add_argument("--limit", type=count, default=10, help="games to play on both engines")
    parser.add_argument("--steps", type=count, default=40, help="commands a game")
    parser.add_argument("--seed", type=any_seed, default=0)
    parser.add_argument("--json", action="store_true", help="only the JSON line")
    return parser.parse_args()


if __name__ == "__main__":
    main()
