"""Stage ``sft``: π₀, a policy that imitates the demonstrations.

From scratch: a tokenizer and a Llama-architecture model of the demonstrations. Otherwise a published model, with or
without LoRA, which may write reasons for the expert's actions first. The same code from there on. Without
demonstrations (``demos.games: 0``) π₀ is the published model as it is.
"""

from __future__ import annotations

from agentprm_core.datasets import atomic_write, episodes_from_table, read_table
from agentprm_core.improve.rationale import rationalised
from agentprm_core.improve.sft import SftSettings, train_sft
from agentprm_core.policy.models import Checkpoint, save_checkpoint
from agentprm_core.policy.starting import starting_policy
from agentprm_core.prm.model import reads_likelihood
from agentprm_core.types import EPISODES, Episode
from agentprm_core.worlds import world_spec
from tasks.frame import layout
from tasks.frame.lineage import parents
from tasks.frame.machine import hardware, use
from tasks.frame.sections import Compute
from tasks.frame.stage import Stage, StageError, run_stage, write_json


def work(stage: Stage) -> None:
    """Fine-tune π₀ on the demonstrations."""
    params, section = stage.params, stage.params.sft
    use(params.compute)
    stage.read(layout.DEMOS)
    demos = list(episodes_from_table(read_table(layout.DEMOS, EPISODES)))
    spec = world_spec(params.env.world)
    policy = starting_policy(params.model, demos, spec, device=params.compute.device, seed=stage.seed)
    check_likelihood(policy, params.critic.likelihood)
    if params.model.reason_tokens:
        demos = with_reasons(policy, demos, params.model.reason_tokens, params.compute)
    settings = SftSettings(
        **hardware(params).settings(
            learning_rate=section.learning_rate, batch_tokens=section.batch_tokens, seed=stage.seed
        ),
        epochs=section.epochs,
        observation_weight=section.observation_weight,
    )
    model, metrics = policy.model, {"curve": [], "seconds": 0.0, "resumed_from": 0}
    if demos:
        model, metrics = train_sft(demos, policy.renderer, model, settings, stage.scratch)
    with atomic_write(layout.policy(0)) as folder:
        told = {"prompt": policy.renderer.prompt, "world": params.env.world}
        digest = save_checkpoint(model, policy.tokenizer, folder, **told)
    curve = metrics.pop("curve")
    write_json(curve, layout.PLOTS / "sft.json")
    stage.report_training({**metrics, "parameters": model.num_parameters(), "vocabulary": len(policy.tokenizer)}, curve)
    with stage.tracking():
        stage.tracker.register_policy(layout.policy(0), digest, 0, parents(params, 0))
    stage.wrote(layout.policy(0))


def check_likelihood(policy: Checkpoint, likelihood: float) -> None:
    """Raises StageError for a PRM that is to read what this policy does not give, before anything is played."""
    if likelihood and not reads_likelihood(policy.model):
        raise StageError(
            f"params.yaml: critic.likelihood: {likelihood:g} is not allowed: 0 with this model.source, whose output is "
            "not its embedding (tie_word_embeddings), or with an adapter on the embedding"
        )


def with_reasons(policy: Checkpoint, demos: list[Episode], most: int, compute: Compute) -> list[Episode]:
    """The demonstrations with a reason for each action, by the policy that is to learn them.

    Raises StageError for a policy that writes none.
    """
    if policy.renderer.format != "chat":
        raise StageError(
            "params.yaml: model.reason_tokens must be 0: model.source has no chat template, it writes no reasons"
        )
    return rationalised(policy, demos, max_tokens=most, slots=compute.slots, cache_mb=compute.cache_mb)


if __name__ == "__main__":
    run_stage("sft", work, iterated=False)
