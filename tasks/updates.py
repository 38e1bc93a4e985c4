"""The ways from π_{i−1} to π_i that ``policy.method`` names, behind one signature.

Each takes the stage and the policy, trains it in place and returns what a trainer returns.
``expert_iteration`` and ``online_dpo`` follow the PRM, the one through the search of the stage before, the other by its
preferences; ``rft``, ``grpo`` and ``gigpo`` are their rivals, which read outcomes alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
from transformers import PreTrainedModel

from agentprm_core.credit.group import gigpo_advantages, grpo_advantages
from agentprm_core.credit.turns import Turns, read_turns
from agentprm_core.datasets import episodes_from_table, read_table
from agentprm_core.improve.online_dpo import DpoSettings, judge, new_proposer, train_online_dpo
from agentprm_core.improve.pairs import PairCounts
from agentprm_core.improve.policy_gradient import GradientSettings, train_policy_gradient
from agentprm_core.improve.rft import expert_like, successes
from agentprm_core.improve.sft import SftSettings, train_sft
from agentprm_core.policy.models import Checkpoint, load_checkpoint
from agentprm_core.types import EPISODES, PAIRS, Episode
from tasks.frame import layout
from tasks.frame.compute import load_player, several_processes, training_settings
from tasks.frame.stage import Stage
from tasks.frame.suites import pairs_suite
from tasks.watching import judged, watch

_PROBED = 256
"""Episodes whose states the written pairs are drawn at; demonstrations whose ends are scored."""
_MOST_TIES = 0.99
_MOST_OUT_OF_ACTIONS = 0.1
"""Of the episodes that ran out of actions, the share that may end as demonstrations do before the log speaks of it."""

Updated = tuple[PreTrainedModel, dict, pa.Table]
"""The model, the trainer's figures, and rows of PAIRS (none where the method makes none)."""


def online_dpo(stage: Stage, policy: Checkpoint) -> Updated:
    """Preferences of the PRM among the policy's own actions. The pairs it begins with pass a gate first."""
    episodes = rollouts(stage)
    if stage.params.compute.processes > 1:
        print(f"{stage.name}: online_dpo draws actions as it trains: one process, no shards", flush=True)
    prm = load_player(layout.prm(stage.iteration), stage.params.compute, "prm")
    settings = dpo_settings(stage)
    pairs, counts = first_pairs(episodes[:: max(1, len(episodes) // _PROBED)], policy, prm, settings)
    stage.gate(pairs_suite(pairs, settings.margin, _MOST_TIES, 1 - counts.pairs / counts.states))
    watching = watch(stage, policy, prm, settings)
    visited = [*episodes, *replayed(stage, len(episodes))]
    model, figures = train_online_dpo(visited, policy, prm, settings, stage.scratch, watching, anchor(stage))
    first = {name: getattr(counts, name) / counts.states for name in ("pairs", "same", "tied")}
    return model, {**figures, "first": first, **judged(watching)}, pairs


def expert_iteration(stage: Stage, policy: Checkpoint) -> Updated:
    """Imitation of what the search won: the policy's own play with the PRM choosing (:mod:`tasks.search`). Or of what
    ends in it as demonstrations do (``policy.imitates: expert_like``), by the PRM alone."""
    stage.read(layout.searched(stage.iteration))
    searched = list(episodes_from_table(read_table(layout.searched(stage.iteration), EPISODES)))
    if stage.params.policy.imitates == "won":
        return _imitation(stage, searched, successes(searched), policy)
    stage.read(layout.DEMOS)
    demos = list(episodes_from_table(read_table(layout.DEMOS, EPISODES)))
    prm = load_player(layout.prm(stage.iteration), stage.params.compute, "prm")
    tokens = stage.params.policy.batch_tokens
    alike = expert_like(searched, demos[:: max(1, len(demos) // _PROBED)], prm.model, prm.renderer, tokens)
    known = knows_an_end(stage, searched, alike)
    model, figures, pairs = _imitation(stage, searched, alike, policy)
    return model, figures | known, pairs


def knows_an_end(stage: Stage, searched: Sequence[Episode], alike: Sequence[Episode]) -> dict[str, int]:
    """Episodes that ended because no action was left (``env.max_turns``), and how many of them are imitated: a PRM that
    knows how an expert ends takes nearly none of them for its own. Outcomes are not read, and nothing is left out."""
    out, out_alike = (
        sum(episode.length >= stage.params.env.max_turns for episode in some) for some in (searched, alike)
    )
    if out_alike > _MOST_OUT_OF_ACTIONS * out:
        print(
            f"{stage.name}: {out_alike} of the {out} episodes that ran out of actions are imitated as ending like "
            "demonstrations: this PRM hardly knows how an expert ends. More demonstrations (demos.games) may teach it; "
            "policy.method online_dpo does without",
            flush=True,
        )
    return {"out_of_actions": out, "out_of_actions_imitated": out_alike}


def rft(stage: Stage, policy: Checkpoint) -> Updated:
    """Imitation of its own successes."""
    episodes = rollouts(stage)
    return _imitation(stage, episodes, successes(episodes), policy)


def _imitation(stage: Stage, offered: Sequence[Episode], kept: Sequence[Episode], policy: Checkpoint) -> Updated:
    section = stage.params.policy
    settings = SftSettings(
        **training_settings(stage, section),
        **several_processes(stage),
        steps=section.steps,
        observation_weight=stage.params.sft.observation_weight,
    )
    demos = replayed(stage, len(kept))
    model, figures = train_sft([*kept, *demos], policy.renderer, policy.model, settings, stage.scratch)
    counts = {"episodes": len(offered), "imitated": len(kept), "demonstrations": len(demos)}
    return model, figures | counts, PAIRS.empty_table()


def grpo(stage: Stage, policy: Checkpoint) -> Updated:
    """Every turn by the advantage of its trajectory."""
    return _gradient(stage, policy, grpo_advantages)


def gigpo(stage: Stage, policy: Checkpoint) -> Updated:
    """The trajectory's advantage, and that of the turn among those in the same state."""
    section, label = stage.params.policy, stage.params.label
    return _gradient(
        stage,
        policy,
        lambda turns: gigpo_advantages(turns, gamma=label.gamma, omega=section.omega, visit_key=label.key),
    )


UPDATES: dict[str, Callable[[Stage, Checkpoint], Updated]] = {
    "expert_iteration": expert_iteration,
    "online_dpo": online_dpo,
    "rft": rft,
    "grpo": grpo,
    "gigpo": gigpo,
}


def rollouts(stage: Stage) -> list[Episode]:
    """What π_{i−1} played."""
    stage.read(layout.rollouts(stage.iteration))
    return list(episodes_from_table(read_table(layout.episodes(stage.iteration), EPISODES)))


def dpo_settings(stage: Stage) -> DpoSettings:
    section = stage.params.policy
    return DpoSettings(
        **training_settings(stage, section),
        steps=section.steps,
        beta=section.beta,
        preference=section.preference,
        imitation=section.imitation,
        refresh_every=section.refresh_every,
        samples=section.samples,
        temperature=section.temperature,
        margin=section.margin,
        constrained=stage.params.rollout.constrained,
        max_action_tokens=stage.params.model.max_action_tokens,
    )


def anchor(stage: Stage) -> PreTrainedModel | None:
    """What ``policy.anchor`` keeps the policy near: π₀; None stands for the policy before the update."""
    if stage.params.policy.anchor == "previous":
        return None
    stage.read(layout.policy(0))
    return load_checkpoint(layout.policy(0)).model  # on the CPU: only its weights are copied


def replayed(stage: Stage, visited: int) -> list[Episode]:
    """The demonstrations that an update visits beside ``visited`` episodes: ``policy.replay`` of all, or all there
    are."""
    share = stage.params.policy.replay
    if not share:
        return []
    stage.read(layout.DEMOS)
    demos = list(episodes_from_table(read_table(layout.DEMOS, EPISODES)))
    wanted = round(visited * share / (1 - share))
    return random.Random(stage.seed).sample(demos, min(wanted, len(demos)))


def first_pairs(
    episodes: Sequence[Episode], policy: Checkpoint, prm: Checkpoint, settings: DpoSettings
) -> tuple[pa.Table, PairCounts]:
    """Rows of PAIRS drawn from π_{i−1} at the states of these episodes, and what became of all states."""
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


def _gradient(stage: Stage, policy: Checkpoint, advantages: Callable[[Turns], np.ndarray]) -> Updated:
    section, episodes = stage.params.policy, rollouts(stage)
    turns = read_turns(layout.episodes(stage.iteration))
    by_episode = np.split(advantages(turns), turns.starts_E[1:])
    settings = GradientSettings(
        **training_settings(stage, section),
        **several_processes(stage),
        steps=section.steps,
        beta=section.beta,
        clip=section.clip,
    )
    model, figures = train_policy_gradient(episodes, by_episode, policy, settings, stage.scratch)
    return model, figures, PAIRS.empty_table()
