"""Rejection-sampling fine-tuning (RFT; paper B, baselines): imitation of the policy's own successes.

**What it learns from.** The rollouts of π_{i−1} that were won, each way of winning a game once. No PRM takes part. With
``keeps: undecided`` it leaves out the games that were never lost, so that what the policy wins at every try does not
crowd out what it can barely win. That needs several episodes a game. DAPO (arXiv 2503.14476, §3.2) and Reinforce-Rej
(arXiv 2504.11343) leave out groups of one outcome, too.

**How it updates.** Supervised fine-tuning on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agentprm_core.config import Share
from agentprm_core.datasets import episodes_from_table, episodes_to_table, read_table
from agentprm_core.improve.rft import of_undecided_games, successes
from agentprm_core.methods.base import Collected, Given, Updated
from agentprm_core.methods.update_base import UpdateConfig, imitate
from agentprm_core.suites import chosen_suite
from agentprm_core.types import EPISODES


@dataclass(frozen=True, kw_only=True)
class Config(UpdateConfig):
    """Parameters of ``method.name: rft``."""

    replay: Share
    """Demonstrations as a share of the episodes visited."""
    keeps: Literal["won", "undecided"]
    """``won``: all won episodes. ``undecided``: those of games that were lost as well."""


def collect(config: Config, given: Given) -> Collected:
    """Rows of EPISODES: the won ones. Raises DataError where none was won."""
    offered = given.episodes if config.keeps == "won" else of_undecided_games(given.episodes)
    won = successes(offered)
    table = episodes_to_table(won, iteration=given.iteration, method="won", policy=given.policy.digest)
    figures = {"episodes": len(given.episodes), "chosen": len(won)}
    return Collected(table, figures, chosen_suite(table, given.policy.digest))


def update(config: Config, given: Given) -> Updated:
    """Imitation of what was collected."""
    kept = list(episodes_from_table(read_table(given.folders.collected, EPISODES)))
    return imitate(config, given, kept, config.replay)
