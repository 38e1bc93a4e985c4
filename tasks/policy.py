"""Stage ``policy``: π_i from π_{i−1}, what it visited, and the PRM that tells its better actions from its worse.

Refuses a PRM that ranks held-out actions no better than chance, unless ``prm.require_ranking`` is off. The pairs that
the update begins with are written and pass a gate; later ones are drawn from the policy as it changes.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from transformers import PreTrainedModel

from agentprm_core.datasets import episodes_from_table, read_table, whole, write_table
from agentprm_core.improve.online_dpo import DpoSettings, judge, train_online_dpo
from agentprm_core.improve.pairs import PairCounts
from agentprm_core.improve.proposals import Proposer
from agentprm_core.improve.rft import train_rft
from agentprm_core.improve.sft import SftSettings
from agentprm_core.policy.models import Policy, load_policy, save_policy
from agentprm_core.types import EPISODES, PAIRS, Episode
from tasks import layout
from tasks.compute import training_settings, use
from tasks.lineage import parents
from tasks.stage import Stage, StageError, read_json, run_stage, write_json
from tasks.suites import pairs_suite

_PROBED = 256
"""Episodes whose states the written pairs are drawn at."""
_MOST_TIES = 0.99


def work(stage: Stage) -> None:
    """Improve the policy by the PRM's judgement."""
    use(stage.params.compute)
    i, device = stage.iteration, stage.params.compute.device
    stage.read(layout.rollouts(i), layout.prm(i), layout.policy(stage.prev))
    _check_ranking(stage)
    episodes = list(episodes_from_table(read_table(layout.episodes(i), EPISODES)))
    policy = load_policy(layout.policy(stage.prev), device=device)
    if stage.params.policy.method == "rft":
        pairs = PAIRS.empty_table()
        model, figures = _rft(stage, episodes, policy)
    else:
        prm = load_policy(layout.prm(i), kind="prm", device=device)
        settings = dpo_settings(stage)
        pairs, counts = first_pairs(episodes[:: max(1, len(episodes) // _PROBED)], policy, prm, settings)
        stage.gate(pairs_suite(pairs, settings.margin, _MOST_TIES, 1 - counts.pairs / counts.states))
        model, figures = train_online_dpo(episodes, policy, prm, settings, stage.scratch)
        figures["first"] = {name: getattr(counts, name) / counts.states for name in ("pairs", "same", "tied")}
    curve = figures.pop("curve")
    with whole(layout.policy(i)) as folder:
        digest = save_policy(model, policy.tokenizer, folder)
    write_table(pairs, layout.pairs(i))
    write_json(curve, layout.PLOTS / f"policy-{i}.json")
    stage.report_training({**figures, "last": curve[-1]}, curve)
    with stage.tracking():
        stage.tracker.register_policy(layout.policy(i), digest, i, parents(stage.params, i))
    stage.wrote(layout.policy(i), layout.pairs(i))


def dpo_settings(stage: Stage) -> DpoSettings:
    section = stage.params.policy
    return DpoSettings(
        **training_settings(stage, section),
        steps=section.steps,
        beta=section.beta,
        refresh_every=section.refresh_every,
        samples=section.samples,
        temperature=section.temperature,
        margin=section.margin,
        constrained=stage.params.rollout.constrained,
        max_action_tokens=stage.params.model.max_action_tokens,
    )


def first_pairs(
    episodes: Sequence[Episode], policy: Policy, prm: Policy, settings: DpoSettings
) -> tuple[pa.Table, PairCounts]:
    """Rows of PAIRS drawn from π_{i−1} at the states of these episodes, and what became of all states."""
    proposer = Proposer(
        policy,
        temperature=settings.temperature,
        constrained=settings.constrained,
        max_action_tokens=settings.max_action_tokens,
        batch_tokens=settings.batch_tokens,
    )
    seeds = [(settings.seed, settings.steps, n, n) for n in range(len(episodes))]
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


def _check_ranking(stage: Stage) -> None:
    """Raises StageError for a PRM that has not been shown to rank actions."""
    if stage.params.policy.method == "rft" or not stage.params.prm.require_ranking:
        return
    ranking = read_json(layout.metrics(f"prm-{stage.iteration}"))["ranking"]
    if not ranking["better_than_chance"]:
        raise StageError(
            f"{layout.prm(stage.iteration)} ranks actions no better than chance: {_said(ranking)}. A policy that "
            "follows it learns nothing. Give it more to learn from (rollout.games, rollout.episodes_per_game, "
            "rollout.branch.train_states), measure it at more states (rollout.branch.validation_states), or set "
            "prm.require_ranking: false"
        )


def _said(ranking: dict) -> str:
    if ranking["accuracy"] is None:
        return "no held-out state has two actions whose measured returns differ"
    return (
        f"it orders {ranking['accuracy']:.0%} [{ranking['accuracy_low']:.0%}, {ranking['accuracy_high']:.0%}] of "
        f"{ranking['pairs']} pairs at {ranking['states']} held-out states as their returns do"
    )


def _rft(stage: Stage, episodes: Sequence[Episode], policy: Policy) -> tuple[PreTrainedModel, dict]:
    """The rival that imitates its own successes."""
    section = stage.params.policy
    settings = SftSettings(
        **training_settings(stage, section),
        steps=section.steps,
        observation_weight=stage.params.sft.observation_weight,
    )
    return train_rft(episodes, policy.renderer, policy.model, settings, stage.scratch)


if __name__ == "__main__":
    run_stage("policy", work, iterated=True, gated=True)
