"""The champions: which policy of each set of held-out games is held for the best, and the way back.

    agentprm champion --show                  # of every arena, with its challenger
    agentprm champion --rollback [ARENA]      # the champion before is champion again

An arena is a world, a set of games and a way of playing (:mod:`tasks.frame.champion`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from agentprm_core.arguments import OneLineParser
from agentprm_core.errors import EXPECTED, DataError
from agentprm_core.evaluate import wilson
from tasks.commands.registry import asked_mlflow
from tasks.frame.champion import CHALLENGER, CHAMPION, arenas, roll_back, test


def shown(client: Any) -> list[str]:
    """Lines: each arena with its champion, its challenger and the test between them."""
    lines = []
    for model in arenas(client):
        lines.append(model.name)
        held = {}
        for alias in (CHAMPION, CHALLENGER):
            if (number := model.aliases.get(alias)) is not None:
                held[alias] = client.get_model_version(model.name, str(number))
                lines.append(f"  {alias:<10} version {number}: {_described(held[alias].tags)}")
        if len(held) == 2:
            found = test(held[CHAMPION].tags, held[CHALLENGER].tags)
            lines.append(f"  the challenger gained {found.gained} games and lost {found.lost}, p = {found.p_value:.3g}")
    return lines or ["no policy is registered yet: the stage compare does that at the end of a campaign"]


def _described(tags: dict[str, str]) -> str:
    games = int(tags["games"])
    low, high = wilson(round(float(tags["success"]) * games), games)
    share = f"{float(tags['success']):.1%} [{low:.1%}, {high:.1%}] of {games} games, {tags['split']} {tags['decoding']}"
    return f"{share}; iteration {tags['iteration']}, campaign {tags['campaign']}, digest {tags['digest']}"


def the_arena(client: Any, name: str | None) -> str:
    """The arena ``name``, or the only one. Raises DataError where that is none or not one."""
    names = [model.name for model in arenas(client)]
    if name is not None and name not in names:
        raise DataError(f"{name}: no such arena; there are: {', '.join(names) or 'none'}")
    if name is None and len(names) != 1:
        raise DataError(f"say which arena: {', '.join(names) or 'there is none yet'}")
    return name or names[0]


def main(prog: str = "python -m tasks.commands.champion", arguments: Sequence[str] | None = None) -> None:
    parser = OneLineParser(prog=prog, description="Show the champions, or go back to the one before.")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--show", action="store_true", help="champion and challenger of every arena")
    what.add_argument("--rollback", action="store_true", help="the champion before is champion again")
    parser.add_argument("arena", nargs="?", help="needed by --rollback where there are several")
    asked = parser.parse_args(arguments)
    try:
        with asked_mlflow() as (client, _):
            said = shown(client) if asked.show else [roll_back(client, the_arena(client, asked.arena))]
    except EXPECTED as error:
        sys.exit(str(error))
    print("\n".join(said))


if __name__ == "__main__":
    main()
