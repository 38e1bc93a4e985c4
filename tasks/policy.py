"""Stage ``policy``: π_i from π_{i−1}, what it visited, and the PRM that tells its better actions from its worse.

Refuses a PRM that ranks held-out actions no better than chance, unless ``prm.require_ranking`` is off, and one whose
choices win no more held-out games where ``prm.require_gain`` is on. The pairs that the update begins with are written
and pass a gate; later ones are drawn from the policy as it changes.
"""

from __future__ import annotations

from agentprm_core.datasets import episodes_from_table, read_table, whole, write_table
from agentprm_core.policy.models import load_policy, save_policy
from agentprm_core.types import EPISODES
from tasks import layout
from tasks.compute import use
from tasks.gain import required_gain
from tasks.lineage import parents
from tasks.stage import Stage, StageError, read_json, run_stage, write_json
from tasks.updates import UPDATES
from tasks.watching import tell


def work(stage: Stage) -> None:
    """Improve the policy."""
    use(stage.params.compute)
    i, method = stage.iteration, stage.params.policy.method
    stage.read(layout.rollouts(i), layout.prm(i), layout.policy(stage.prev))
    if method == "online_dpo" and stage.params.prm.require_ranking:
        _check_ranking(i)
    episodes = list(episodes_from_table(read_table(layout.episodes(i), EPISODES)))
    policy = load_policy(layout.policy(stage.prev), device=stage.params.compute.device)
    gain = {"gain": required_gain(stage, episodes, policy)} if stage.params.prm.require_gain else {}
    model, figures, pairs = UPDATES[method](stage, episodes, policy)
    curve = figures.pop("curve")
    with whole(layout.policy(i)) as folder:
        digest = save_policy(model, policy.tokenizer, folder)
    write_table(pairs, layout.pairs(i))
    write_json(curve, layout.PLOTS / f"policy-{i}.json")
    stage.report_training({**figures, **gain, "last": curve[-1]}, curve)
    if "monitor" in figures:
        tell(stage, figures["monitor"])
    with stage.tracking():
        stage.tracker.register_policy(layout.policy(i), digest, i, parents(stage.params, i))
    stage.wrote(layout.policy(i), layout.pairs(i))


def _check_ranking(iteration: int) -> None:
    """Raises StageError for a PRM that has not been shown to rank actions."""
    ranking = read_json(layout.metrics(f"prm-{iteration}"))["ranking"]
    if not ranking["better_than_chance"]:
        raise StageError(
            f"{layout.prm(iteration)} ranks actions no better than chance: {_said(ranking)}. A policy that "
            "follows it learns nothing. Give it more to learn from (rollout.games, rollout.episodes_per_game, "
            "rollout.branch.train_states), measure it at more states (rollout.branch.validation_states), or set "
            "prm.require_ranking: false"
        )


def _said(ranking: dict) -> str:
    if ranking["accuracy"] is None:
        return "no held-out state has two actions whose measured returns differ by more than prm.ranking_margin"
    return (
        f"it orders {ranking['accuracy']:.0%} [{ranking['accuracy_low']:.0%}, {ranking['accuracy_high']:.0%}] of "
        f"{ranking['pairs']} pairs at {ranking['states']} held-out states as their returns do"
    )


if __name__ == "__main__":
    run_stage("policy", work, iterated=True, gated=True)
