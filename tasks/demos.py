"""Stage ``demos``: the world's expert plays training games, for the policy to imitate. Games it loses are left out.

With ``demos.games: 0`` the table is empty.
"""

from __future__ import annotations

import random

from agentprm_core.datasets import episodes_to_table, games_from_table, read_table, write_table
from agentprm_core.draws import demonstrated
from agentprm_core.suites_played import demos_suite
from agentprm_core.types import GAMES
from agentprm_core.worlds import world_spec
from agentprm_core.worlds.demonstrations import demonstrate, none_won
from tasks.frame import layout
from tasks.frame.stage import Stage, StageError, run_stage


def work(stage: Stage) -> None:
    """Let the expert play training games."""
    section, name = stage.params.demos, stage.params.env.world
    spec = world_spec(name)
    stage.read(layout.games("train"))
    games = games_from_table(read_table(layout.games("train"), GAMES))
    shown = [game for game in games if spec.shown(game)]
    if len(shown) < section.count:
        allowed = f"at most {len(shown)}, the training games that {spec.name} has demonstrated"
        raise StageError(f"params.yaml: demos.games: {section.count} is not allowed: {allowed}")
    draws = random.Random(stage.seed)
    world, played = spec.make(), []
    for game in demonstrated(shown, section.count, seed=stage.seed):
        most = spec.of(game).expert_turns
        seed = draws.getrandbits(62)
        played.append(demonstrate(world, game, world_name=name, max_turns=most, seed=seed, **section.how))
    won = [episode for episode in played if episode.won]
    if played and not won:
        raise StageError(none_won(played, name))
    table = episodes_to_table(won, iteration=0, method="expert", policy="expert")
    stage.gate(demos_suite(table) if won else [])
    write_table(table, layout.DEMOS)
    figures = {"games": len(played)}
    if won:
        actions = sum(episode.length for episode in won) / len(won)
        figures |= {"success": len(won) / len(played), "mean_actions": actions}
    budget = {"episodes_played": len(played), "turns_played": sum(episode.length for episode in played)}
    stage.report({**figures, **budget})
    stage.wrote(layout.DEMOS)


if __name__ == "__main__":
    run_stage("demos", work, iterated=False, gated=True)
