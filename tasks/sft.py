"""Stage ``sft``: π₀, a policy that imitates the demonstrations.

From scratch: a tokenizer and a Llama-architecture model of the demonstrations. Otherwise a published model, with or
without LoRA, which may write reasons for the expert's actions first. The same code from there on.
"""

from __future__ import annotations

from agentprm_core.datasets import atomic_write, episodes_from_table, read_table
from agentprm_core.improve.rationale import rationalised
from agentprm_core.improve.sft import SftSettings, train_sft
from agentprm_core.policy.models import Checkpoint, load_checkpoint, new_model, save_checkpoint
from agentprm_core.policy.prompt import make_renderer
from agentprm_core.policy.tokenizer import train_tokenizer
from agentprm_core.types import EPISODES, Episode
from agentprm_core.worlds import world_spec
from tasks.frame import layout
from tasks.frame.compute import several_processes, training_settings, use
from tasks.frame.lineage import parents
from tasks.frame.params import Lora, Params, Sft
from tasks.frame.stage import Stage, StageError, run_stage, write_json


def work(stage: Stage) -> None:
    """Fine-tune π₀ on the demonstrations."""
    use(stage.params.compute)
    section = stage.params.sft
    stage.read(layout.DEMOS)
    demos = list(episodes_from_table(read_table(layout.DEMOS, EPISODES)))
    policy = starting_policy(stage.params, demos, stage.seed)
    if section.reason_tokens:
        demos = with_reasons(policy, demos, section)
    settings = SftSettings(
        **training_settings(stage, section),
        **several_processes(stage),
        epochs=section.epochs,
        observation_weight=section.observation_weight,
    )
    model, metrics = train_sft(demos, policy.renderer, policy.model, settings, stage.scratch)
    with atomic_write(layout.policy(0)) as folder:
        digest = save_checkpoint(model, policy.tokenizer, folder, instruction=policy.renderer.instruction)
    curve = metrics.pop("curve")
    write_json(curve, layout.PLOTS / "sft.json")
    stage.report_training({**metrics, "parameters": model.num_parameters(), "vocabulary": len(policy.tokenizer)}, curve)
    with stage.tracking():
        stage.tracker.register_policy(layout.policy(0), digest, 0, parents(stage.params, 0))
    stage.wrote(layout.policy(0))


def starting_policy(params: Params, demos: list[Episode], seed: int) -> Checkpoint:
    """The model before it has seen a demonstration."""
    section = params.model
    if section.source != "scratch":
        policy = load_checkpoint(
            section.source, device=params.compute.device, instruction=world_spec(params.env.world).instruction
        )
        return with_lora(policy, section.lora) if section.lora.rank else policy
    texts = {text for demo in demos for turn in demo.turns for text in (turn.observation, *turn.admissible)}
    spec = world_spec(params.env.world)
    tokenizer = train_tokenizer(sorted(texts), section.context, spec.phrases, spec.entity)
    model = new_model(
        tokenizer,
        width=section.width,
        layers=section.layers,
        heads=section.heads,
        kv_heads=section.kv_heads,
        context=section.context,
        seed=seed,
    )
    return Checkpoint(model.to(params.compute.device), tokenizer, make_renderer(tokenizer), digest="untrained")


def with_reasons(policy: Checkpoint, demos: list[Episode], section: Sft) -> list[Episode]:
    """The demonstrations with a reason for each action, by the policy that is to learn them.

    Raises StageError for a policy that writes none.
    """
    if policy.renderer.format != "chat":
        raise StageError(
            "params.yaml: sft.reason_tokens must be 0: model.source has no chat template, it writes no reasons"
        )
    return rationalised(policy, demos, max_tokens=section.reason_tokens, batch_tokens=section.batch_tokens)


def with_lora(policy: Checkpoint, section: Lora) -> Checkpoint:
    """The same policy with a fresh LoRA adapter to train."""
    from peft import LoraConfig, get_peft_model

    lora = LoraConfig(
        r=section.rank,
        lora_alpha=section.alpha,
        target_modules=list(section.modules),
        task_type="CAUSAL_LM",
    )
    return Checkpoint(get_peft_model(policy.model, lora), policy.tokenizer, policy.renderer, policy.digest)


if __name__ == "__main__":
    run_stage("sft", work, iterated=False)
