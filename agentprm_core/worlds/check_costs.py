"""What a world costs: steps a second, microseconds a clone, kilobytes an episode."""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable, Sequence

from agentprm_core.types import Game
from agentprm_core.worlds.base import World

Played = Sequence[tuple[Game, Sequence[str]]]
"""Games, and commands that can be done in each."""

_SECONDS = 0.3
_PATIENCE = 10
"""Times ``_SECONDS`` that a measurement may take on the clock: a world that waits uses hardly any CPU time."""
_WORLDS_A_GAME = 5
_MEASUREMENTS = 3


def steps_per_second(make: Callable[[], World], played: Played, *, remote: bool = False) -> float:
    """In games that were played before, the admissible commands included, resets not. Of CPU time; of time on the clock
    where the world is taken to be ``remote``, as one that waits."""
    clock = time.perf_counter if remote else time.process_time
    world, spent, steps = make(), 0.0, 0
    end = time.perf_counter() + _PATIENCE * _SECONDS
    while not steps or (spent < _SECONDS and time.perf_counter() < end):
        for game, commands in played:
            world.reset(game)
            started = clock()
            for command in commands:
                world.step(command)
            spent += clock() - started
            steps += len(commands)
    return steps / max(spent, 1e-9)


def clone_microseconds(make: Callable[[], World], played: Played) -> float:
    """CPU time of a clone in the middle of an episode, the mean over episodes."""
    world, total = make(), 0.0
    for game, commands in played:
        _play(world, game, commands[: len(commands) // 2])
        clones, started = 0, time.process_time()
        while (spent := time.process_time() - started) < _SECONDS / len(played):
            world.clone()
            clones += 1
        total += spent / clones
    return total / len(played) * 1e6


def episode_kilobytes(make: Callable[[], World], played: Played) -> float:
    """Python memory that a world holds at the end of an episode, its last observation included; what worlds share and
    keep is not counted. The least of a few measurements, since what other threads allocate is counted too."""
    for game, commands in played:
        _play(make(), game, commands)
    return min(_held_kilobytes(make, played) for _ in range(_MEASUREMENTS))


def _held_kilobytes(make: Callable[[], World], played: Played) -> float:
    gc.collect()
    tracemalloc.start()
    try:
        live = []
        for game, commands in played:
            for _ in range(_WORLDS_A_GAME):
                world = make()
                live.append((world, _play(world, game, commands)))
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return held / len(live) / 1024


def _play(world: World, game: Game, commands: Sequence[str]):
    seen = world.reset(game)
    for command in commands:
        seen = world.step(command)
    return seen
