"""Stage ``demos``: the expert plays training games, for the policy to imitate. Games it loses are left out.

``corrupt`` makes it a worse expert: at that share of its turns a random admissible command is done instead of its own,
and it goes on from what that led to.
"""

from __future__ import annotations

import random

from agentprm_core.datasets import episodes_to_table, games_from_table, read_table, write_table
from agentprm_core.types import GAMES, Game
from agentprm_core.worlds import make_world
from agentprm_core.worlds.demonstrations import demonstrate
from tasks.frame import layout
from tasks.frame.stage import Stage, StageError, run_stage


def work(stage: Stage) -> None:
    """Let the expert play training games."""
    section = stage.params.demos
    stage.read(layout.games("train"))
    games = games_from_table(read_table(layout.games("train"), GAMES))
    chosen = choose(games, section.games, stage.seed)
    world = make_world(stage.params.env.world)
    draws = random.Random(stage.seed)
    seeds = [draws.getrandbits(62) for _ in chosen]
    how = {
        "world_name": stage.params.env.world,
        "max_turns": section.max_turns,
        "knowledge": section.knowledge,
        "corrupt": section.corrupt,
    }
    played = [demonstrate(world, game, seed=seed, **how) for game, seed in zip(chosen, seeds)]
    won = [episode for episode in played if episode.won]
    if not won:
        raise StageError(f"the expert won none of {len(played)} games within {section.max_turns} actions")
    write_table(episodes_to_table(won, iteration=0, method="expert", policy="expert"), layout.DEMOS)
    stage.report(
        {
            "games": len(played),
            "success": len(won) / len(played),
            "mean_actions": sum(episode.length for episode in won) / len(won),
        }
    )
    stage.wrote(layout.DEMOS)


def choose(games: list[Game], count: int, seed: int) -> list[Game]:
    """``count`` of the games, drawn by the seed, sorted by id."""
    return sorted(random.Random(seed).sample(games, count), key=lambda game: game.id)


if __name__ == "__main__":
    run_stage("demos", work, iterated=False)
