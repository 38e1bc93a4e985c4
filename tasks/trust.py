"""Whether a PRM may be followed, by an update or by a search for one: what ``prm.require_ranking`` and
``prm.require_gain`` ask of it."""

from __future__ import annotations

from agentprm_core.datasets import episodes_from_table, read_table
from agentprm_core.policy.models import Checkpoint
from agentprm_core.types import EPISODES
from tasks.frame import layout
from tasks.frame.stage import Stage, StageError, read_json
from tasks.gain import required_gain


def trusted(stage: Stage, policy: Checkpoint) -> dict:
    """The figures of what params.yaml requires of this iteration's PRM, trained on ``policy``'s rollouts.

    Raises:
        StageError: the PRM has not shown it.
    """
    if stage.params.prm.require_ranking:
        _check_ranking(stage.iteration)
    if not stage.params.prm.require_gain:
        return {}
    episodes = list(episodes_from_table(read_table(layout.episodes(stage.iteration), EPISODES)))
    return {"gain": required_gain(stage, episodes, policy)}


def _check_ranking(iteration: int) -> None:
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
