"""Play in shards: turns a second with 1 to N players, processes of this machine beside actors of Ray, in one run.

    python -m benchmarks.shards --json
    python -m benchmarks.shards --actors 4 --rounds 5 --json
    python -m benchmarks.shards --empty 0 --json          # without the shards of no work

The shipped agent plays generated households in portions of one size, with one thread of torch a player. Each round
plays the same portions in every way, one after the other, so that what else the machine does meets all of them.
Figures are medians of the rounds. Starting the players is not counted: a rate is that of the time between the first
portion's beginning and the last one's end. The last line printed is a JSON object:

- ``local``, ``ray``: by number of players ``turns_per_s`` and ``cpu_ms_per_turn``, the players' own CPU time. Where the
  machine has other work to do, the rate falls and the CPU time does not.
- ``growth_local``, ``growth_ray``: the rate with N players by that with one.
- ``ray_loses``: the share of the rate with N processes that N actors lack.
- ``ray_cpu_share``: of all CPU time with N actors, that of Ray's own processes and of this one.
- ``empty_ms``: wall and CPU milliseconds a shard of no work, with one actor and with N.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence

import psutil
import torch

from agentprm_core.arguments import at_least, count
from agentprm_core.policy.models import Checkpoint, load_checkpoint
from agentprm_core.rollout import Start, play, starts
from agentprm_core.search.playing import PlaySettings
from agentprm_core.shards.base import HERE, Shards
from agentprm_core.shards.cluster import Cluster
from agentprm_core.shards.processes import Processes
from agentprm_core.worlds.alfworld.households import generate_games

SETTINGS = PlaySettings("alfworld", 30, 512, 16, constrained=True, slots=64, cache_mb=512)


def player(policy: Checkpoint, slots: int) -> Callable[[list[Start]], tuple[int, float]]:
    """Turns and CPU seconds of a portion of rollouts."""

    def played(begun: list[Start]) -> tuple[int, float]:
        before = time.process_time()
        turns = sum(episode.length for episode in play(SETTINGS.sampler(policy, 1.0, slots), begun, **SETTINGS.worlds))
        return turns, time.process_time() - before

    return played


def idle() -> Callable[[int], int]:
    """A portion of no work."""
    return int


def measured(
    where: Shards, policy: Checkpoint, portions: Sequence[tuple], slots: int = SETTINGS.slots
) -> tuple[float, float, float]:
    """Turns a second, the players' CPU milliseconds a turn, and the share of all CPU time that is not the players'.
    ``slots``: episodes that a player plays at once."""
    before, turns, cpu, begun, ended = others_cpu(), 0, 0.0, [], 0.0
    for done in where.play(player, (policy, slots), portions):
        ended = time.perf_counter()
        begun.append(ended - done.seconds)
        turns, cpu = turns + done.result[0], cpu + done.result[1]
    other = max(0.0, others_cpu() - before) if where is not HERE else 0.0
    return turns / (ended - min(begun)), 1000 * cpu / turns, other / (other + cpu)


def others_cpu() -> float:
    """CPU seconds so far of this process and of Ray's own: its servers, and workers without an actor."""
    total = time.process_time()
    for process in psutil.Process().children(recursive=True):
        try:
            if "ray::Actor" not in " ".join(process.cmdline()):
                total += sum(process.cpu_times()[:2])
        except psutil.Error:  # it has ended
            continue
    return total


def empty(where: Cluster, count: int) -> dict[str, float]:
    """Milliseconds a shard of no work: on the clock, and of CPU outside the actors."""
    portions = [(number,) for number in range(count)]
    list(where.play(idle, (), portions[:100]))
    before, start = others_cpu(), time.perf_counter()
    assert len(list(where.play(idle, (), portions))) == count
    wall, cpu = time.perf_counter() - start, others_cpu() - before
    return {"wall": round(1000 * wall / count, 3), "cpu": round(1000 * cpu / count, 3)}


def main() -> None:
    args = _arguments()
    torch.set_num_threads(1)
    policy = load_checkpoint("shipped:households")
    begun = starts(generate_games(args.portions * args.episodes, 1, "unseen"), 1, 1)
    portions = [(begun[at : at + args.episodes],) for at in range(0, len(begun), args.episodes)]
    counts = range(1, args.actors + 1)
    Cluster(None, threads=1, actors=sum(counts)).join()  # one Ray with room for all of those
    rays = {count: Cluster(None, threads=1, actors=count) for count in counts}
    pools = {count: Processes(count, threads=1) if count > 1 else HERE for count in counts}
    found: dict[tuple[str, int], list[tuple[float, float, float]]] = {}
    for number in range(args.rounds + 1):
        for players in counts:
            for name, where in (("local", pools[players]), ("ray", rays[players])):
                few = portions[:players] if number == 0 else portions  # the first round wakes all up
                figures = measured(where, policy, few)
                if number:
                    found.setdefault((name, players), []).append(figures)
    middle = {key: [statistics.median(column) for column in zip(*rows)] for key, rows in found.items()}
    report = _report(middle, args)
    if args.empty:
        report["empty_ms"] = {}
        for players in sorted({1, args.actors}):
            report["empty_ms"][players] = empty(rays[players], args.empty)
    rays[1].close()
    if not args.json:
        for name, value in report.items():
            print(f"{name:>16} {value}")
    print(json.dumps(report))


def _report(middle: dict[tuple[str, int], list[float]], args: argparse.Namespace) -> dict:
    most = args.actors
    rate = {key: figures[0] for key, figures in middle.items()}
    ways = {
        way: {
            count: {"turns_per_s": round(middle[way, count][0]), "cpu_ms_per_turn": round(middle[way, count][1], 3)}
            for count in range(1, most + 1)
        }
        for way in ("local", "ray")
    }
    return {
        **ways,
        "growth_local": round(rate["local", most] / rate["local", 1], 2),
        "growth_ray": round(rate["ray", most] / rate["ray", 1], 2),
        "ray_loses": round(1 - rate["ray", most] / rate["local", most], 3),
        "ray_cpu_share": round(middle["ray", most][2], 3),
        "rounds": args.rounds,
        "episodes": args.portions * args.episodes,
        "cores": len(os.sched_getaffinity(0)),
        "load_before": round(args.load, 1),
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--actors", type=count, default=2, help="players, at most (default %(default)s)")
    parser.add_argument("--portions", type=count, default=8, help="of each way (default %(default)s)")
    parser.add_argument("--episodes", type=count, default=64, help="of a portion (default %(default)s)")
    parser.add_argument("--rounds", type=count, default=3, help="(default %(default)s)")
    parser.add_argument("--empty", type=at_least(0), default=10_000, help="shards of no work (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="print the JSON object alone")
    args = parser.parse_args()
    args.load = os.getloadavg()[0]
    return args


if __name__ == "__main__":
    main()
