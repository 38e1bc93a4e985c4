"""Stage ``demos``: the expert plays training games, for the policy to imitate. Games it loses are left out."""

from __future__ import annotations

import random

from agentprm_core.datasets import episodes_to_table, games_from_table, read_table, write_table
from agentprm_core.envs import make_world
from agentprm_core.envs.alfworld.expert import play_expert
from agentprm_core.types import GAMES, Game
from tasks import layout
from tasks.stage import Stage, StageError, run_stage


def work(stage: Stage) -> None:
    """Let the expert play training games."""
    section = stage.params.demos
    stage.read(layout.games("train"))
    games = games_from_table(read_table(layout.games("train"), GAMES))
    chosen = choose(games, section.games, stage.seed)
    world = make_world(stage.params.env.engine)
    seeds = random.Random(stage.seed)
    played = [play_expert(world, game, section.max_turns, seeds.getrandbits(62)) for game in chosen]
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
