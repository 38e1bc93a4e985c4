"""Plays the fast engine and TextWorld side by side and counts the steps at which they differ.

    python -m benchmarks.engine_parity --games DIR --split valid_seen --limit 20 --steps 40 --seed 0 --json

Each game gets one walk of ``--steps`` commands, the same on both engines. At every step the observation, the sorted
admissible commands and ``won`` must be equal. A walk picks a verb first and then one of its commands, so that doors
open and objects travel; a tenth of the commands are inadmissible ones. Half of the walks start with a stretch of the
expert's commands. The last line printed is a JSON object, with the first mismatch in full.

``--memoise`` remembers what TextWorld's pure functions gave (grammar texts parsed, PDDL translated), which makes a walk
less than half as dear. It changes nothing it says: the same walks have been played without.
"""

from __future__ import annotations

import argparse
import copy
import functools
import json
import random
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from tqdm import tqdm

from agentprm_core.arguments import any_seed, at_least, count
from agentprm_core.types import Game
from agentprm_core.worlds import Observation, World, make_world
from agentprm_core.worlds.alfworld.expert import Expert, NothingLeft
from agentprm_core.worlds.alfworld.games import load_games

VERB_WEIGHTS = {
    **{"go": 3.0, "take": 4.0, "move": 4.0, "open": 3.0, "close": 1.0},
    **{"heat": 4.0, "cool": 4.0, "clean": 4.0, "use": 3.0, "slice": 5.0},
    **{"examine": 1.5, "look": 1.5, "inventory": 0.5, "help": 0.1},
}
"""How often a walk picks a verb, relative to the other verbs admissible then."""

INADMISSIBLE_SHARE = 0.1
EXPERT_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Where two engines first said different things."""

    game_id: str
    commands: list[str]
    fast: dict
    textworld: dict


def random_command(rng: random.Random, observation: Observation, seen: list[str]) -> str:
    """An admissible command, verb first; or, for one in ten, one that was admissible elsewhere, or is misspelt."""
    if rng.random() < INADMISSIBLE_SHARE:
        return rng.choice([rng.choice(seen), rng.choice(seen).upper(), f" {rng.choice(seen)} ", "put it down", ""])
    by_verb: dict[str, list[str]] = {}
    for command in observation.admissible:
        by_verb.setdefault(command.split()[0], []).append(command)
    verbs = sorted(by_verb)
    verb = rng.choices(verbs, [VERB_WEIGHTS[verb] for verb in verbs])[0]
    return rng.choice(by_verb[verb])


def expert_command(expert: Expert, seen: Observation) -> str | None:
    """The expert's next command, None once it has looked everywhere."""
    try:
        return expert.act(seen)
    except NothingLeft:
        return None


def side_by_side(
    game: Game, fast: World, reference: World, steps: int, rng: random.Random, expert: bool = True
) -> tuple[Counter, Mismatch | None]:
    """Play one walk on both: counts of what happened, and the first mismatch (the walk ends there).

    ``expert`` False: no stretch of the expert's commands (a household the expert does not know).
    """
    counts: Counter = Counter(games=1)
    done: list[str] = []
    seen: list[str] = []
    guide = Expert()
    led = rng.randrange(steps) if expert and rng.random() < EXPERT_SHARE else 0
    ours, theirs = fast.reset(game), reference.reset(game)
    while ours == theirs and len(done) < steps:
        seen += sorted(set(ours.admissible) - set(seen))
        led = 0 if ours.done else led
        command = expert_command(guide, ours) if len(done) < led else None
        counts["by_expert"] += command is not None
        if command is None:
            led = 0
            command = random_command(rng, ours, seen)
        counts[command.split()[0] if command in ours.admissible else "inadmissible"] += 1
        done.append(command)
        ours, theirs = fast.step(command), reference.step(command)
        counts["won_states"] += theirs.done
        counts["stray_objects"] += "Next to it, you see a " in theirs.text
    counts["steps"] = len(done)
    if ours == theirs:
        return counts, None
    counts["mismatches"] += 1
    return counts, Mismatch(game.id, done, ours._asdict(), theirs._asdict())


def memoise_textworld() -> None:
    """Remember the results of the published engine's parsers and translator. Results that it alters are copied.

    Its text generator copies the variables of every grammar symbol deeply, though nothing writes to them: most of a
    step's time. Here the dictionaries are copied and what they hold is shared. Each problem is translated once and
    not a second time for its planner, which no walk asks.
    """
    import fast_downward
    from textworld.envs.pddl import textgen
    from textworld.logic import Rule

    parse_text, translate = functools.cache(textgen._parse_and_convert), fast_downward.pddl2sas
    textgen._parse_and_convert = lambda *args, **named: copy.deepcopy(parse_text(*args, **named))
    Rule.parse_conjunctive_query = functools.cache(Rule.parse_conjunctive_query)
    textgen.copy_context = lambda context: {
        **context,
        "variables": dict(context["variables"]),
        "mapping": dict(context["mapping"]),
    }
    translated = functools.lru_cache(maxsize=1)(lambda domain, problem: translate(domain, problem, verbose=False))
    fast_downward.pddl2sas = lambda domain, problem, **_: translated(domain, problem)


def main() -> None:
    args = _arguments()
    games = load_games(args.games, args.split)[args.offset :: args.stride][: args.limit]
    if args.memoise:
        memoise_textworld()
    fast, reference = make_world("alfworld"), make_world("alfworld-textworld")
    total: Counter = Counter(games=0, steps=0, mismatches=0)
    first: Mismatch | None = None
    started = time.perf_counter()
    for game in tqdm(games, disable=None):
        counts, mismatch = side_by_side(game, fast, reference, args.steps, random.Random(f"{args.seed}/{game.id}"))
        total += counts
        first = first or mismatch
        if mismatch and not args.json:
            print(json.dumps(asdict(mismatch)), file=sys.stderr)
    report = {
        **{
            "split": args.split,
            "offset": args.offset,
            "stride": args.stride,
            "seed": args.seed,
            "memoised": args.memoise,
        },
        **{name: total[name] for name in ("games", "steps", "mismatches")},
        "counts": dict(sorted(total.items())),
        "seconds": round(time.perf_counter() - started, 1),
        "first_mismatch": asdict(first) if first else None,
    }
    print(json.dumps(report))
    sys.exit(1 if first else 0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", type=Path, required=True, help="the folder that holds json_2.1.1")
    parser.add_argument("--split", default="valid_seen")
    parser.add_argument("--offset", type=at_least(0), default=0, help="skip this many games of the split")
    parser.add_argument("--stride", type=count, default=1, help="play every so many games, to sample or to shard")
    parser.add_argument("--limit", type=count, help="play at most this many games")
    parser.add_argument("--steps", type=count, default=40, help="commands a walk")
    parser.add_argument("--memoise", action="store_true", help="remember what TextWorld parses")
    parser.add_argument("--seed", type=any_seed, default=0)
    parser.add_argument("--json", action="store_true", help="only the JSON line")
    return parser.parse_args()


if __name__ == "__main__":
    main()
