"""Stage ``prm``: the critic trains a process reward model of π_{i−1}'s turns; and how well it ranks actions.

It is trained on the training games' turns and validated on the other games. The figure that matters is the ranking: at
held-out states with several tried actions, how often the PRM orders two of them as their measured returns do, and how
often one half of the plays does as the other. The policy's own likelihood orders them too: a PRM that orders no more
pairs than that has not learnt anything that the policy did not know.

The ranking is measured twice: on validation games of the rollouts, which are in places that the PRM was trained in, and
on guard games (``guard``), which are in new places. The second decides whether the PRM may be followed.
"""

from __future__ import annotations

from agentprm_core.methods.critic_base import save_prm
from agentprm_core.methods.critics import critic_module
from agentprm_core.prm.by_turn import scores_by_turn
from agentprm_core.prm.dataset import tried_episodes
from agentprm_core.prm.ranking import in_words, ranked
from agentprm_core.prm.score import score_episodes
from tasks.frame import layout
from tasks.frame.given import given
from tasks.frame.stage import Stage, run_stage, write_json


def work(stage: Stage) -> None:
    """Train and validate a process reward model."""
    config, i, data = stage.params.critic, stage.iteration, given(stage)
    stage.read(layout.rollouts(i), layout.labels(i), layout.policy(stage.prev))
    trained = critic_module(config.name).train(config, data)
    trainee, figures = data.trainee, trained.figures
    save_prm(trained.model, data, layout.prm(i))
    curve = figures.pop("curve")
    write_json(curve, layout.PLOTS / f"prm-{i}.json")
    episodes, tokens = [item.episode for item in trained.held_out], stage.params.compute.pass_tokens
    scores = score_episodes(trained.model, trainee.renderer, episodes, tokens)
    figures |= {"by_turn": scores_by_turn(scores, episodes), "measured_as": trained.measured_as}
    how = {"batch_tokens": tokens, "seed": stage.seed, "policy": trainee.model}
    figures |= ranked(trained.model, trainee.renderer, trained.held_out, **how)
    print(f"{stage.name}: {in_words(figures)}", flush=True)
    if layout.guard_branches(i).exists():
        returns = {"gamma": config.gamma, "outcome": getattr(config, "outcome", "binary")}  # as its labels have it
        guard = tried_episodes(layout.guard_episodes(i), layout.guard_branches(i), **returns)
        figures["guard"] = ranked(trained.model, trainee.renderer, guard, **how)
        print(f"{stage.name}: in new places {in_words(figures['guard'])}", flush=True)
    stage.report_training(figures, curve)
    stage.wrote(layout.prm(i))


if __name__ == "__main__":
    run_stage("prm", work, iterated=True)
