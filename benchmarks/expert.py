"""How often does a world's expert win, by kind of game or by an attribute, within some numbers of actions?

    python -m benchmarks.expert --world babyai --games 330 --by level --turns 20 25 --json
    python -m benchmarks.expert --world alfworld --games data/games --split unseen --knowledge 1 --by floor_plan

The games are generated, or those of a folder: a campaign's ``data/games``, or a world's published games.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from agentprm_core.arguments import any_seed, count, share_or_all
from agentprm_core.errors import EXPECTED, DataError
from agentprm_core.types import Game
from agentprm_core.worlds import world_spec
from agentprm_core.worlds.demonstrations import demonstrate
from agentprm_core.worlds.game_sources import generated_by
from agentprm_core.worlds.published import find_games


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.expert", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--world", required=True)
    parser.add_argument("--games", default="200", metavar="N|DIR", help="so many are generated, or those of a folder")
    parser.add_argument("--split", default="train", help="train, seen or unseen; or as published games call theirs")
    parser.add_argument("--seed", type=any_seed, default=1)
    parser.add_argument("--episodes", type=count, default=1, help="of each game, each with a seed of its own")
    parser.add_argument("--by", default="kind", help="kind, or an attribute of the games")
    parser.add_argument("--turns", type=count, nargs="+", default=[20, 25], help="numbers of actions")
    parser.add_argument("--expert", help="another than the world's first one, as demos.games names it")
    parser.add_argument(
        "--knowledge", type=share_or_all, default=0.0, help="of the expert, as demos.knowledge; default 0"
    )
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object")
    asked = parser.parse_args()
    try:
        if asked.games.isdecimal():
            games = generated_by(world_spec(asked.world), int(asked.games), asked.seed, asked.split)
        elif Path(asked.games).is_dir():
            games = find_games(asked.world, Path(asked.games), asked.split)
        else:
            raise DataError(f"--games: {asked.games!r} is neither a number of games nor a folder that has some")
        if not games:
            raise DataError("--games: at least one is needed")
        figures = measure(
            asked.world, games, asked.by, sorted(asked.turns), seed=asked.seed, episodes=asked.episodes,
            knowledge=asked.knowledge, expert=asked.expert,
        )  # fmt: skip
    except EXPECTED as error:
        sys.exit(f"expert: {error}")
    print(f"{asked.by:>12}  {'n':>5}" + "".join(f"  within {turns}" for turns in figures["turns"]))
    for value, row in figures["by"].items():
        print(f"{value!s:>12}  {row['n']:>5}" + "".join(f"  {share:>9.2f}" for share in row["won"]))
    if asked.json:
        print(json.dumps(figures))


def measure(
    world_name: str,
    games: Iterable[Game],
    by: str,
    turns: list[int],
    *,
    seed: int,
    episodes: int = 1,
    knowledge: float = 0.0,
    expert: str | None = None,
) -> dict:
    """Shares of ``games``, ``episodes`` times each, that the expert wins within each of ``turns``, by ``by`` and for
    ``all``. Episode i of a game has seed ``seed`` + i.

    Raises DataError for an unknown world, one without an expert, or an attribute that its games do not have.
    """
    spec = world_spec(world_name)
    if by != "kind" and by not in spec.attributes:
        raise DataError(f"--by: {by!r} is not kind, nor an attribute of {world_name}: {', '.join(spec.attributes)}")
    world, lengths, start = spec.make(), defaultdict(list), time.perf_counter()
    how = {"world_name": world_name, "max_turns": turns[-1], "knowledge": knowledge, "expert": expert}
    for game in games:
        for nth in range(episodes):
            episode = demonstrate(world, game, seed=seed + nth, **how)
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
        "turns": turns,
        "expert": expert,
        "knowledge": knowledge,
        "episodes": episodes,
        "by": rows,
        "seconds": time.perf_counter() - start,
    }


if __name__ == "__main__":
    main()
