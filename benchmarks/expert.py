"""How often does a world's expert win, by kind of game or by an attribute, within some numbers of actions?

python -m benchmarks.expert --world babyai --games 330 --by level --turns 20 25 --json
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict

from agentprm_core.errors import DataError
from agentprm_core.worlds import world_spec
from agentprm_core.worlds.demonstrations import demonstrate


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.expert", description=__doc__.split("\n")[0])
    parser.add_argument("--world", required=True)
    parser.add_argument("--games", type=int, default=200, help="that are generated")
    parser.add_argument("--split", default="train", help="train, seen or unseen")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--by", default="kind", help="kind, or an attribute of the games")
    parser.add_argument("--turns", type=int, nargs="+", default=[20, 25], help="numbers of actions")
    parser.add_argument("--expert", help="another than the world's first one, as demos.games names it")
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object")
    asked = parser.parse_args()
    try:
        figures = measure(
            asked.world, asked.games, asked.split, asked.seed, asked.by, sorted(asked.turns), asked.expert
        )
    except DataError as error:
        sys.exit(f"expert: {error}")
    print(f"{asked.by:>12}  {'n':>5}" + "".join(f"  within {turns}" for turns in figures["turns"]))
    for value, row in figures["by"].items():
        print(f"{value!s:>12}  {row['n']:>5}" + "".join(f"  {share:>9.2f}" for share in row["won"]))
    if asked.json:
        print(json.dumps(figures))


def measure(
    world_name: str, count: int, split: str, seed: int, by: str, turns: list[int], expert: str | None = None
) -> dict:
    """Shares of ``count`` generated games that the expert wins within each of ``turns``, by ``by`` and for ``all``.

    Raises DataError for an unknown world, one without an expert, or an attribute that its games do not have.
    """
    spec = world_spec(world_name)
    if by != "kind" and by not in spec.attributes:
        raise DataError(f"--by: {by!r} is not kind, nor an attribute of {world_name}: {', '.join(spec.attributes)}")
    world, lengths, start = spec.make(), defaultdict(list), time.perf_counter()
    for game in spec.generate(count, seed, split):
        how = {"world_name": world_name, "max_turns": turns[-1], "seed": seed, "knowledge": 0.0}
        episode = demonstrate(world, game, expert=expert, **how)
        value = game.kind if by == "kind" else game.attributes[by]
        for group in (value, "all"):
            lengths[group].append(episode.length if episode.won else float("inf"))
    groups = [*sorted(group for group in lengths if group != "all"), "all"]
    rows = {
        group: {
            "n": len(lengths[group]),
            "won": [sum(length <= limit for length in lengths[group]) / len(lengths[group]) for limit in turns],
        }
        for group in groups
    }
    return {
        "world": world_name,
        "split": split,
        "turns": turns,
        "expert": expert,
        "by": rows,
        "seconds": time.perf_counter() - start,
    }


if __name__ == "__main__":
    main()
