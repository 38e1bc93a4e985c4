"""Does a world keep the contract? Plays it and says in plain lines what is wrong and what is missing.

    python -m tasks.check_world alfworld
    python -m tasks.check_world my_package.my_module:SPEC --games 50 --json

Games are generated. With ``--root`` they are the published ones there. A world without a generator has those of
``--root``, of the environment variable ``NAME_DATA``, or of ../shared/data/later/NAME.tar.xz. Exits with 1 where
something is wrong. ``--json``: the last line is one object.

Steps a second are of games that were played before. A world that keeps what it has found is slower on first visits.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from agentprm_core.arguments import OneLineParser, called, count
from agentprm_core.errors import EXPECTED
from agentprm_core.worlds import WorldSpec, world_spec
from agentprm_core.worlds.check_games import games_to_check
from agentprm_core.worlds.check_spec import game_faults, missing, spec_faults
from agentprm_core.worlds.checking import CHECKS, Report, check_world

_SEED = 1
_LAST = ("deterministic", "clones_independent", "keys_sound")
"""Of the JSON object, before the times."""


def main(prog: str = "python -m tasks.check_world") -> None:
    parser = OneLineParser(prog=prog, description=(__doc__ or "").split("\n")[0])
    parser.add_argument("world", help="a name, or package.module:SPEC")
    parser.add_argument("--games", type=count, default=20, help="how many are played (default 20)")
    parser.add_argument("--root", type=Path, help="published games in place of generated ones: a folder or archive")
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object")
    asked = parser.parse_args()
    try:
        spec = world_spec(asked.world)
        found = games_to_check(spec, asked.root, asked.games, _SEED, asked.world)
    except EXPECTED as error:
        sys.exit(f"{called(prog)}: {error}")
    faults = [*found.faults, *spec_faults(spec), *game_faults(spec, found.by_split)]
    report = check_world(spec, found.by_split["train"], name=asked.world, seed=_SEED)
    lacking = [*found.lacking, *missing(spec)]
    print(*_lines(spec, found.root, report, faults, lacking), sep="\n")
    if asked.json:
        print(json.dumps(_figures(report, faults, lacking)))
    sys.exit(1 if report.faults or faults else 0)


def _lines(
    spec: WorldSpec, root: Path | None, report: Report, faults: Sequence[str], lacking: Sequence[str]
) -> list[str]:
    head = f"{report.world}: {report.games} games{f' of {root}' if root else ''}, {report.steps} steps"
    lines = [head, *_verdict("games", "as the spec says", faults)]
    for check, right in CHECKS.items():
        if report.holds(check) is None:
            lines.append(f"  --   {check}: not checked, {report.unchecked[check]}")
        else:
            lines += _verdict(check, right, [report.faults[check]] if check in report.faults else [])
    if report.expert_success is not None:
        mean = "" if report.expert_actions is None else f", with {report.expert_actions:.1f} actions in the mean"
        lines.append(f"  the expert wins {report.expert_success:.0%} of {report.games} games{mean}")
    if report.steps_per_s is not None:
        clone = "" if report.clone_us is None else f", {report.clone_us:.1f} µs a clone"
        speed = f"{report.steps_per_s:,.0f} steps a second in games played before"
        speed += ", by the clock, in one session" * spec.remote
        if report.cpu_steps_per_s is not None:
            waits = "the world waits, or the machine is busy"
            speed += f", by the clock ({report.cpu_steps_per_s:,.0f} of CPU time: {waits})"
        lines.append(f"  {speed}{clone}, {report.episode_kb:.1f} KB an episode")
    return [*lines, *(f"  note: {line}" for line in report.notes), *(f"  missing: {line}" for line in lacking)]


def _verdict(check: str, right: str, faults: Sequence[str]) -> list[str]:
    return [f"  BAD  {check}: {line}" for line in faults] or [f"  ok   {check}: {right}"]


def _figures(report: Report, faults: Sequence[str], lacking: Sequence[str]) -> Mapping[str, object]:
    return {
        "world": report.world,
        "games": report.games,
        "steps": report.steps,
        **{check: report.holds(check) for check in CHECKS if check not in _LAST},
        "faults": [*faults, *report.faults.values()],
        "notes": list(report.notes),
        "missing": list(lacking),
        "expert_success": report.expert_success,
        "expert_actions": report.expert_actions,
        **{check: report.holds(check) for check in _LAST},
        "steps_per_s": report.steps_per_s and round(report.steps_per_s),
        "clone_us": report.clone_us and round(report.clone_us, 2),
        "episode_kb": report.episode_kb and round(report.episode_kb, 2),
    }


if __name__ == "__main__":
    main()
