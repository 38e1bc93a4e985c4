"""DAgger (Ross, Gordon and Bagnell 2011, arXiv 1011.0686): imitation of the expert in states that the policy gets into.

**What it learns from.** Every rollout of this campaign so far, π_{i−1}'s and those of the policies before it. The first
k actions of each are done again, and the world's expert goes on from there; k is drawn from all turns of the rollout.
Kept is what is won within the campaign's actions. No PRM takes part, and no outcome of the policy is read. It needs an
expert who can be asked at any state, which is more than demonstrations: a rival where there is one, and a ceiling
elsewhere.

**How it updates.** Supervised fine-tuning on the expert's actions and none of the policy's, with demonstrations
beside them.

Departs from the paper: the expert takes over once in an episode, where the paper asks it at every state and lets the
policy go on; the policy that rolls in is the learner's alone, β_i = 0; the update goes on from π_{i−1}, for a number of
steps, where the paper trains anew on the aggregate.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from agentprm_core.config import Share, ShareOrAll
from agentprm_core.datasets import episodes_from_table, episodes_to_table, read_table
from agentprm_core.errors import DataError
from agentprm_core.improve.takeover import taken_over
from agentprm_core.methods.base import Collected, Given, Played, Updated
from agentprm_core.methods.update_base import UpdateConfig, imitate
from agentprm_core.suites import chosen_suite
from agentprm_core.types import EPISODES


@dataclass(frozen=True, kw_only=True)
class Config(UpdateConfig):
    """Parameters of ``method.name: dagger``."""

    expert: str | None
    """Which of the world's experts; null: its first one."""
    knowledge: ShareOrAll
    """Of the expert, as ``demos.knowledge``."""
    replay: Share
    """Demonstrations as a share of the episodes visited."""


def collect(config: Config, given: Given) -> Collected:
    """Rows of EPISODES: those that the expert won after it took over, numbered within their game. Raises DataError
    where there is none, or no such expert."""
    tables = (read_table(path, EPISODES) for path in given.folders.rollouts)
    rollouts = [episode for table in tables for episode in episodes_from_table(table)]
    games = {game.id: game for game in given.training_games}
    how = {"seed": given.seed, "knowledge": config.knowledge, "expert": config.expert}
    played = taken_over(rollouts, games, world_name=given.play.world, max_turns=given.play.max_turns, **how)
    numbers: dict[str, int] = {}
    kept = []
    for episode in played:
        if episode.won:
            number = numbers[episode.game_id] = numbers.get(episode.game_id, -1) + 1
            kept.append(replace(episode, index=number))
    if not kept:
        raise DataError(f"the expert won none of the {len(played)} rollouts that it took over: nothing to imitate")
    table = episodes_to_table(kept, iteration=given.iteration, method="taken_over", policy="expert")
    turns = sum(episode.length - episode.start for episode in played)
    figures = {
        "episodes": len(played),
        "chosen": len(kept),
        "success": len(kept) / len(played),
        "mean_actions_before": sum(episode.start for episode in kept) / len(kept),
        "mean_actions_imitated": sum(episode.length - episode.start for episode in kept) / len(kept),
    }
    return Collected(table, figures, chosen_suite(table, "expert"), Played(len(played), turns))


def update(config: Config, given: Given) -> Updated:
    """Imitation of the expert's actions in what was collected."""
    kept = list(episodes_from_table(read_table(given.folders.collected, EPISODES)))
    return imitate(config, given, kept, config.replay)
