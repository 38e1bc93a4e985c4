"""Holds generated households against published ones: size, emptiness, closed doors, and where things lie.

    python -m benchmarks.households --games DIR --split train --count 500 --json

For each room, averages over the published games of a split and over as many generated ones as asked for. ``--table``
prints the rates that :mod:`agentprm_core.worlds.alfworld.priors` holds, measured anew. The last line is a JSON object;
``largest_difference`` is that between the table and these games.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from agentprm_core.arguments import any_seed, count
from agentprm_core.types import Game
from agentprm_core.worlds.alfworld.games import load_games
from agentprm_core.worlds.alfworld.household_layout import ROOMS
from agentprm_core.worlds.alfworld.households import generate_games
from agentprm_core.worlds.alfworld.pddl import parse_problem
from agentprm_core.worlds.alfworld.priors import WHERE

LEAST_SHARE = 0.005
"""Receptacle types that hold a smaller share of a kind are left out of the table."""


@dataclass(frozen=True, slots=True)
class Home:
    room: str
    receptacles: dict[str, str]
    """Id → type, without the suffix ``type``, lower case."""
    things: dict[str, str]
    """Id → type of what lies in a receptacle."""
    places: dict[str, str]
    """Thing → the first receptacle that it is said to be in."""
    closed: int


def read_home(game: Game) -> Home:
    facts = parse_problem(game.payload).init
    places: dict[str, str] = {}
    for thing, receptacle in facts["inreceptacle"]:
        places.setdefault(thing, receptacle)
    return Home(
        room=next(room for room, base in ROOMS.items() if base < game.attributes["floor_plan"] <= base + 30),
        receptacles={name: kind.removesuffix("type") for name, kind in facts["receptacletype"]},
        things={name: kind.removesuffix("type") for name, kind in facts["objecttype"] if name in places},
        places=places,
        closed=len(facts.get("openable", ())),
    )


def averages(homes: list[Home]) -> dict[str, float]:
    """Receptacles and things a home; the shares of receptacles that are empty and that are closed."""
    count = len(homes)
    receptacles = sum(len(home.receptacles) for home in homes)
    return {
        "games": count,
        "receptacles": round(receptacles / count, 1),
        "things": round(sum(len(home.things) for home in homes) / count, 1),
        "empty": round(1 - sum(len(set(home.places.values())) for home in homes) / receptacles, 2),
        "closed": round(sum(home.closed for home in homes) / receptacles, 2),
    }


def rates(homes: Iterable[Home]) -> dict[str, dict[str, float]]:
    """Object type → receptacle type → probability that one such object is in one such receptacle."""
    found: dict[str, Counter] = defaultdict(Counter)
    chances: dict[str, Counter] = defaultdict(Counter)
    for home in homes:
        receptacles = Counter(home.receptacles.values())
        for thing, kind in home.things.items():
            found[kind][home.receptacles[home.places[thing]]] += 1
            for receptacle, there in receptacles.items():
                chances[kind][receptacle] += there
    return {
        kind: {
            receptacle: count / chances[kind][receptacle]
            for receptacle, count in counts.items()
            if count >= max(2, LEAST_SHARE * counts.total())
        }
        for kind, counts in found.items()
    }


def largest_difference(measured: dict[str, dict[str, float]]) -> float:
    """Between a rate of the package's table and the same rate in these games."""
    return max(
        abs(rate - measured.get(kind.lower(), {}).get(receptacle.lower(), 0.0))
        for kind, row in WHERE.items()
        for receptacle, rate in row.items()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", type=Path, required=True, help="root of a published tree")
    parser.add_argument("--split", default="train")
    parser.add_argument("--count", type=count, default=500, help="generated games")
    parser.add_argument("--seed", type=any_seed, default=0)
    parser.add_argument("--table", action="store_true", help="print the measured rates, in thousandths")
    parser.add_argument("--json", action="store_true", help="print nothing but the last line")
    arguments = parser.parse_args()
    games = load_games(arguments.games, arguments.split)
    published = [read_home(game) for game in tqdm(games, disable=None)]
    generated = [read_home(game) for game in generate_games(arguments.count, arguments.seed, "train")]
    measured = rates(published)
    if arguments.table:
        for kind, row in sorted(measured.items()):
            print(kind, *(f"{name} {1000 * rate:.0f}" for name, rate in sorted(row.items(), key=lambda item: -item[1])))
    rooms = {
        room: {
            name: averages([home for home in homes if home.room == room])
            for name, homes in (("published", published), ("generated", generated))
        }
        for room in ROOMS
    }
    if not arguments.json:
        for room, sources in rooms.items():
            for source, row in sources.items():
                print(f"{room:12} {source:10}", *(f"{name} {value}" for name, value in row.items()))
    print(json.dumps({"rooms": rooms, "largest_difference": round(largest_difference(measured), 4)}))


if __name__ == "__main__":
    main()
