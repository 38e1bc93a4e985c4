"""Online DPO against an anchor (paper A, eq. 4): the PRM picks among the policy's own actions.

    max_π E_{s~D, a~π}[Q_φ(s,a)] − β KL(π ‖ π_anchor)

**What it learns from.** The states that the rollouts of π_{i−1} visited. At each state ``samples`` actions are drawn
from the current policy and scored by the PRM; no step is taken in the world. The pairs of the first draw are written
and pass a gate; later ones are drawn as the policy changes.

**How it updates.** ``preference: winner`` is DPO on the best against the worst. ``soft`` is cross-entropy to
π* ∝ π_{i−1} exp(Q/β) over the drawn actions and the rest of them. ``imitation`` adds won episodes.

``trainer: trl`` hands pairs that are drawn once to ``trl.DPOTrainer``: for published models with LoRA, where its memory
and its community matter. It costs more tokens and is not online. A test holds its loss against ours.

``monitor`` watches for reward hacking (:mod:`agentprm_core.improve.monitor`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import pyarrow as pa

from agentprm_core.config import Count, NotNegative, Positive, Range, Share, Temperature
from agentprm_core.improve.monitor import verdict
from agentprm_core.improve.online_dpo import DpoSettings, judge, new_proposer, train_online_dpo
from agentprm_core.improve.pairs import PairCounts
from agentprm_core.methods.base import Collected, Given, Updated
from agentprm_core.methods.trust import trusted
from agentprm_core.methods.update_base import UpdateConfig, hardware_settings, replayed
from agentprm_core.methods.watching import Monitor, watch
from agentprm_core.policy.models import Checkpoint, load_checkpoint
from agentprm_core.suites import pairs_suite
from agentprm_core.types import PAIRS, Episode

_PROBED = 256
"""Episodes whose states the written pairs are drawn at."""
_MOST_TIES = 0.99


@dataclass(frozen=True, kw_only=True)
class Config(UpdateConfig):
    """Parameters of ``method.name: online_dpo``."""

    beta: Positive
    """Weight of the KL to the anchor."""
    anchor: Literal["previous", "first"]
    """The policy it is kept near: π_{i−1} (paper A), or π₀."""
    preference: Literal["winner", "soft"]
    """``winner``: the best action against the worst. ``soft``: all actions, as strongly as their scores differ."""
    imitation: NotNegative
    """Weight of imitating the episodes that were won, beside 1 for the preferences; 0 reads no outcome."""
    replay: Share
    """Demonstrations as a share of the episodes visited."""
    refresh_every: Count
    """Optimizer steps between fresh pairs; 1 is fully online."""
    samples: Annotated[int, Range(ge=2)]
    """Actions drawn at a state."""
    temperature: Temperature
    """They are drawn at."""
    margin: NotNegative
    """States whose best and worst score differ by no more are ties; ``winner`` leaves them out."""
    trainer: Literal["ours", "trl"]
    """``trl``: ``trl.DPOTrainer`` on pairs that are drawn once."""
    monitor: Monitor | None
    """null: nobody looks."""

    def __post_init__(self) -> None:
        ours = self.preference != "winner" or self.anchor != "previous" or self.imitation or self.replay or self.monitor
        if self.trainer == "trl" and ours:
            allowed = "ours, unless preference is winner, anchor previous, imitation and replay 0, and monitor null"
            raise ValueError(f"trainer: 'trl' is not allowed: {allowed}")


def collect(config: Config, given: Given) -> Collected:
    """Rows of PAIRS drawn from π_{i−1}. Raises DataError for a PRM that may not be followed."""
    shown = trusted(given, given.require)
    settings, episodes = dpo_settings(config, given), given.episodes
    pairs, counts = first_pairs(episodes[:: max(1, len(episodes) // _PROBED)], given.trainee, given.prm, settings)
    ties = 1 - counts.pairs / counts.states
    figures = {name: getattr(counts, name) / counts.states for name in ("pairs", "same", "tied")}
    return Collected(pairs, figures | shown, pairs_suite(pairs, config.margin, _MOST_TIES, ties))


def update(config: Config, given: Given) -> Updated:
    """Preferences of the PRM among the policy's own actions."""
    settings, visited = dpo_settings(config, given), given.episodes
    if config.trainer == "trl":
        from agentprm_core.improve.dpo_trl import train_dpo_trl

        return Updated(*train_dpo_trl(visited, given.trainee, given.prm, settings, given.scratch))
    watching = watch(config.monitor, given, settings) if config.monitor else []
    visited = [*visited, *replayed(given, len(visited), config.replay)]
    anchor = None
    if config.anchor == "first":
        anchor = load_checkpoint(given.folders.first_policy).model  # on the CPU: only its weights are copied
    model, figures = train_online_dpo(visited, given.trainee, given.prm, settings, given.scratch, watching, anchor)
    return Updated(model, figures, alarm=verdict(watching[0].looks) if watching else {})


def dpo_settings(config: Config, given: Given) -> DpoSettings:
    """It draws its actions as it trains, so it is one process. A resumed run draws its pairs anew, so a state is kept
    where pairs are fresh."""
    hardware = hardware_settings(config, given, alone=True)
    whole = config.steps if config.trainer == "trl" else config.refresh_every  # TRL's pairs are drawn once
    return DpoSettings(
        **hardware | {"save_every": math.ceil(hardware["save_every"] / whole) * whole},
        steps=config.steps,
        beta=config.beta,
        preference=config.preference,
        imitation=config.imitation,
        refresh_every=whole,
        samples=config.samples,
        temperature=config.temperature,
        margin=config.margin,
        constrained=given.play.constrained,
        max_action_tokens=given.play.max_action_tokens,
    )


def first_pairs(
    episodes: Sequence[Episode], policy: Checkpoint, prm: Checkpoint, settings: DpoSettings
) -> tuple[pa.Table, PairCounts]:
    """Rows of PAIRS drawn from π_{i−1} at the states of these episodes, and what became of all states."""
    assert settings.steps is not None, "the update is so many steps, not epochs"
    proposer = new_proposer(policy, settings)
    seeds = [(settings.seed, settings.steps, n, n) for n in range(len(episodes))]  # steps that training never reaches
    counts = PairCounts()
    found = judge(episodes, proposer.propose(episodes, settings.samples, seeds), prm, settings, counts)
    rows = [
        (
            episode.game_id, episode.index, pair.turn, pair.chosen.action, pair.rejected.action,
            pair.chosen_score, pair.rejected_score,
        )
        for episode, pairs in zip(episodes, found)
        for pair in pairs
    ]  # fmt: skip
    columns = {field.name: [row[n] for row in rows] for n, field in enumerate(PAIRS)}
    return pa.table(columns, schema=PAIRS), counts
