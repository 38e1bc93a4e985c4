"""Stage ``prm``: a process reward model of π_{i−1}'s turns, and how well it ranks actions nobody trained it on.

Trained on the training games' turns (and on the branches at their states, where params.yaml asks for those), validated
on the other games. The figure that matters is the ranking: at held-out states with several tried actions, how often the
PRM orders two of them as their measured returns do, and how often one half of the plays does as the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from transformers import PreTrainedModel

from agentprm_core.branches import BRANCHES
from agentprm_core.credit.branching import branch_values
from agentprm_core.datasets import atomic_write, episodes_from_table, read_table
from agentprm_core.policy.models import Checkpoint, load_checkpoint, new_model, save_checkpoint
from agentprm_core.prm.by_turn import scores_by_turn
from agentprm_core.prm.inverse import InverseSettings, train_inverse
from agentprm_core.prm.model import likelihood_weight, new_prm
from agentprm_core.prm.ranking import choice_gain, ranking_accuracy
from agentprm_core.prm.rows import Labelled, Tried
from agentprm_core.prm.score import score_actions, score_episodes
from agentprm_core.prm.train import PrmSettings, train_prm
from agentprm_core.types import EPISODES, LABELS
from tasks.frame import layout
from tasks.frame.compute import several_processes, training_settings, use
from tasks.frame.stage import Stage, StageError, run_stage, write_json
from tasks.inverse import inverse_episodes

Trained = tuple[PreTrainedModel, dict, list[Labelled]]
"""The model, the trainer's figures, and the held-out episodes to measure its ranking at."""


def work(stage: Stage) -> None:
    """Train and validate a process reward model."""
    use(stage.params.compute)
    section, i = stage.params.prm, stage.iteration
    stage.read(layout.rollouts(i), layout.policy(stage.prev))
    policy = load_checkpoint(layout.policy(stage.prev), device=stage.params.compute.device)
    model, figures, held_out = (_inverse if section.loss == "inverse" else _labelled)(stage, policy)
    with atomic_write(layout.prm(i)) as folder:
        save_checkpoint(model, policy.tokenizer, folder, kind="prm", instruction=policy.renderer.instruction)
    curve = figures.pop("curve")
    write_json(curve, layout.PLOTS / f"prm-{i}.json")
    figures["by_turn"] = by_turn(model, policy, held_out, section.batch_tokens)
    figures |= ranking(model, policy, held_out, stage)
    stage.report_training(figures, curve)
    stage.wrote(layout.prm(i))


def _labelled(stage: Stage, policy: Checkpoint) -> Trained:
    """From the labels of the stage before."""
    section = stage.params.prm
    stage.read(layout.labels(stage.iteration))
    train, held_out = labelled(stage)
    if section.loss == "relative":
        check_pairs(train, section.margin, layout.rollouts(stage.iteration))
    settings = PrmSettings(
        **training_settings(stage, section),
        **several_processes(stage),
        epochs=section.epochs,
        loss=section.loss,
        margin=section.margin,
        beta=section.beta,
        gamma=stage.params.label.gamma,
        gae_lambda=section.gae_lambda,
        targets=section.targets,
    )
    return *train_prm(train, policy.renderer, start(stage, policy), settings, stage.scratch, held_out), held_out


def _inverse(stage: Stage, policy: Checkpoint) -> Trained:
    """From experts' and learners' turns. What was tried beside the held-out ones, with its outcomes, measures only."""
    section = stage.params.prm
    stage.read(layout.inverse(stage.iteration), layout.DEMOS)
    train, held_out = inverse_episodes(stage)
    settings = InverseSettings(
        **training_settings(stage, section),
        **several_processes(stage),
        epochs=section.epochs,
        gamma=stage.params.label.gamma,
    )
    trained = train_inverse(train, policy.renderer, start(stage, policy), settings, stage.scratch, held_out)
    games = {item.episode.game_id for item in held_out}
    episodes = episodes_from_table(read_table(layout.episodes(stage.iteration), EPISODES))
    tried = _tried(stage)
    measured = [
        Labelled(episode, np.full(episode.length, np.nan), tried[episode.game_id, episode.index])
        for episode in episodes
        if episode.game_id in games
    ]
    return *trained, measured


def labelled(stage: Stage) -> tuple[list[Labelled], list[Labelled]]:
    """(training, held-out) episodes with the worth of their turns and of the actions tried beside them."""
    i = stage.iteration
    episodes = list(episodes_from_table(read_table(layout.episodes(i), EPISODES)))
    labels = read_table(layout.labels(i), LABELS)
    tried = _tried(stage)
    q_N, splits = labels["q"].to_numpy(), labels["split"].to_pylist()
    sides: dict[str, list[Labelled]] = {"train": [], "validation": []}
    first = 0
    for episode in episodes:
        q_T = q_N[first : first + episode.length].copy()
        q_T[: episode.start] = np.nan  # replayed: not the policy's turns
        sides[splits[first]].append(Labelled(episode, q_T, tried[episode.game_id, episode.index]))
        first += episode.length
    return sides["train"], sides["validation"]


def check_pairs(items: Sequence[Labelled], margin: float, where: Path) -> None:
    """Raises StageError where no state has two actions whose values differ enough for the relative loss."""
    for item in items:
        values: dict[int, list[float]] = defaultdict(list)
        for tried in item.tried:
            values[tried.turn].append(tried.q)
        for turn, found in values.items():
            known = found if np.isnan(item.q[turn]) else [*found, float(item.q[turn])]
            if max(known) - min(known) > margin:
                return
    raise StageError(
        f"{where}: no state of a training game has two tried actions whose values differ by more than prm.margin, "
        f"{margin}, and prm.loss relative learns from nothing else. Try actions at more of them "
        "(rollout.branch.train_states, rollout.branch.actions, rollout.branch.temperature), lower prm.margin, or set "
        "prm.loss: bce"
    )


def start(stage: Stage, policy: Checkpoint):
    """The model to train: the PRM of the iteration before, or one on the trunk of π_{i−1}, of π₀, or on a fresh one."""
    section, model = stage.params.prm, stage.params.model
    if section.start == "prm" and stage.prev:
        stage.read(layout.prm(stage.prev))
        before = load_checkpoint(layout.prm(stage.prev), kind="prm", device=stage.params.compute.device).model
        if likelihood_weight(before) != section.likelihood:
            raise StageError(
                f"{layout.prm(stage.prev)} was trained with likelihood {likelihood_weight(before)}, prm.likelihood is "
                f"{section.likelihood}: train it anew (dvc repro prm@{stage.prev}), or set prm.start: previous"
            )
        return before
    if section.start in ("previous", "prm"):
        return new_prm(policy.model, section.likelihood)
    if section.start == "sft":
        return new_prm(load_checkpoint(layout.policy(0), device=stage.params.compute.device).model, section.likelihood)
    sizes = {name: getattr(model, name) for name in ("width", "layers", "heads", "kv_heads", "context")}
    fresh = new_model(policy.tokenizer, **sizes, seed=stage.seed).to(stage.params.compute.device)
    return new_prm(fresh, section.likelihood)


def ranking(model, policy: Checkpoint, held_out: Sequence[Labelled], stage: Stage) -> dict:
    """The PRM's order of the actions tried at held-out states, against that of their measured returns.

    ``ranking`` leaves out pairs whose returns differ by ``prm.ranking_margin`` or less, which the noise of a few plays
    orders as much as their worth does; ``policy`` asks this one. ``ranking_of_all`` has every pair. ``choosing``: what
    the PRM's favourite returned beyond the mean action, and what the one that other plays find best did.
    """
    section = stage.params.prm
    branched = [item for item in held_out if item.tried]
    episodes = [item.episode for item in branched]
    actions = [[(tried.turn, tried.action) for tried in item.tried] for item in branched]
    scores = score_actions(model, policy.renderer, episodes, actions, section.batch_tokens)
    state = [f"{item.episode.game_id}/{item.episode.index}/{tried.turn}" for item in branched for tried in item.tried]
    returns = np.array([tried.returns for item in branched for tried in item.tried])
    measured = (state, returns, np.concatenate(scores))
    margins = {"ranking": section.ranking_margin, "ranking_of_all": 0.0}
    figures = {name: ranking_accuracy(*measured, seed=stage.seed, margin=margin) for name, margin in margins.items()}
    return figures | {"choosing": choice_gain(*measured, seed=stage.seed)}


def by_turn(model: PreTrainedModel, policy: Checkpoint, held_out: Sequence[Labelled], batch_tokens: int) -> list[dict]:
    """The PRM's scores of held-out episodes, turn by turn."""
    episodes = [item.episode for item in held_out]
    return scores_by_turn(score_episodes(model, policy.renderer, episodes, batch_tokens), episodes)


def _tried(stage: Stage) -> dict[tuple[str, int], list[Tried]]:
    """By (game, episode) the actions tried at its states, each with its measured value."""
    label = stage.params.label
    branches = read_table(layout.branches(stage.iteration), BRANCHES)
    values = branch_values(branches, gamma=label.gamma, outcome=label.outcome)
    found: dict[tuple[str, int], list[Tried]] = defaultdict(list)
    for row in values.to_pylist():
        found[row["game_id"], row["episode"]].append(
            Tried(row["turn"], row["action"], row["q"], returns=row["returns"])
        )
    return found


if __name__ == "__main__":
    run_stage("prm", work, iterated=True)
