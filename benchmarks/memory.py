"""What an episode in play holds beyond its cache slot: its world, its turns, its tokens, the commands it saw.

    python -m benchmarks.memory --policy data/checkpoints/policy/3 --json

Seats are filled and played until each has done ``--turns`` actions. Then all are given up, and what that frees is what
the episodes held. What stays (tries, spellings, commands of states) is bounded and shared by all episodes of a process.
The last line printed is a JSON object: ``episode_kb``, ``turns`` (their mean then) and ``shared_mb``.
"""

from __future__ import annotations

import argparse
import gc
import json
import tracemalloc
from pathlib import Path

from agentprm_core.arguments import count
from agentprm_core.policy.models import load_checkpoint
from agentprm_core.policy.sampler import Sampler
from agentprm_core.rollout import play, starts
from agentprm_core.worlds.alfworld.households import generate_games


class Enough(Exception):
    """Every seat has done its turns."""


class Watched(Sampler):
    """Stops when every seat has been told ``turns`` actions."""

    def __init__(self, *args: object, turns: int, **settings: object) -> None:
        super().__init__(*args, **settings)
        self.told: dict[int, int] = {}
        self.held = self.playing = self.mean_turns = 0
        self._turns = turns

    def open(self, seed: int) -> int:
        seat = super().open(seed)
        self.told[seat] = 0
        return seat

    def tell(self, seat: int, action: str, reason: str = "") -> None:
        super().tell(seat, action, reason)
        self.told[seat] += 1

    def close(self, seat: int) -> object:
        del self.told[seat]
        return super().close(seat)

    def tick(self) -> list:
        if self.told and min(self.told.values()) >= self._turns:
            self.held, self.playing = held_bytes(), len(self.told)
            self.mean_turns = sum(self.told.values()) / self.playing
            raise Enough
        return super().tick()


def held_bytes() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def measure(args: argparse.Namespace) -> dict:
    policy, games = load_checkpoint(args.policy), generate_games(args.games, 0, "unseen")
    how = {"slots": args.slots, "context": 512, "temperature": 1.0, "constrained": True, "max_action_tokens": 16}
    begun = starts(games, -(-args.slots // len(games)), 0)[: args.slots]
    for _ in play(Sampler(policy, **how), begun, world_name="alfworld", max_turns=1):
        pass  # games are compiled
    player = Watched(policy, **how, turns=args.turns)
    tracemalloc.start()
    before = held_bytes()
    try:
        for _ in play(player, begun, world_name="alfworld", max_turns=30):
            pass
    except Enough:
        pass
    shared = held_bytes() - before
    tracemalloc.stop()
    freed = player.held - before - shared
    return {
        "episode_kb": round(freed / player.playing / 1024, 1),
        "turns": round(player.mean_turns, 1),
        "episodes": player.playing,
        "shared_mb": round(shared / 2**20, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", type=Path, required=True, help="a checkpoint")
    parser.add_argument("--games", type=count, default=64, help="generated households to play")
    parser.add_argument("--slots", type=count, default=1024, help="episodes at once")
    parser.add_argument("--turns", type=count, default=10, help="actions that each has done when it is measured")
    parser.add_argument("--json", action="store_true", help="only the JSON line")
    args = parser.parse_args()
    report = measure(args)
    if not args.json:
        for name, value in report.items():
            print(f"{name:>24} {value}")
    print(json.dumps(report))


if __name__ == "__main__":
    main()
