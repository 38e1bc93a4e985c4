"""From the parameters of a campaign to what the core is given: how this machine plays and trains, where the data
lies."""

from __future__ import annotations

from dataclasses import replace

from agentprm_core.methods.base import Folders, Given
from agentprm_core.policy.starting import ScratchModel
from agentprm_core.prm.ranking import judged_by
from agentprm_core.search.decoding_config import decoding
from agentprm_core.search.playing import PlaySettings, Search
from tasks.frame import layout
from tasks.frame.machine import hardware, use
from tasks.frame.sections import Params
from tasks.frame.servers import servers
from tasks.frame.shards import shards
from tasks.frame.stage import Stage, read_json


def play_settings(params: Params) -> PlaySettings:
    """How this machine plays."""
    return PlaySettings(
        world=params.env.world,
        max_turns=params.env.max_turns,
        context=params.model.context,
        max_action_tokens=params.model.max_action_tokens,
        constrained=params.model.constrained is True,
        slots=params.compute.slots,
        cache_mb=params.compute.cache_mb,
    )


def measuring(params: Params) -> PlaySettings:
    """How this machine plays where policies are measured: ``alfworld`` for one trained in ``alfworld-remembering``."""
    return replace(play_settings(params), world=params.measured_in)


def searches(params: Params) -> list[Search]:
    """Every way of playing that ``evaluate`` measures, with its prior. Raises as :func:`.servers.servers`."""
    play = replace(measuring(params), servers=servers(params))
    temperature, critic = params.rollout.temperature, params.critic
    ways = map(decoding, params.evaluate.decoding)
    return [Search(way, play, temperature, prior=way.prior(critic.prior), gamma=critic.gamma) for way in ways]


def folders(iteration: int, prev: int) -> Folders:
    """Where the data of an iteration lies."""
    return Folders(
        games=layout.games("train"),
        guard=layout.games("guard"),
        demos=layout.DEMOS,
        rollouts=tuple(layout.episodes(i) for i in range(1, iteration + 1)),
        branches=layout.branches(iteration),
        labels=layout.labels(iteration),
        collected=layout.collected(iteration),
        first_policy=layout.policy(0),
        policy=layout.policy(prev),
        prm=layout.prm(iteration),
        prm_before=layout.prm(prev) if prev else None,
    )


def given(stage: Stage) -> Given:
    """What a critic or a method of this iteration may use."""
    params, measured = stage.params, layout.metrics(f"prm-{stage.iteration}")
    use(params.compute)
    return Given(
        iteration=stage.iteration,
        seed=stage.seed,
        campaign_seed=params.seed,
        validation_share=params.rollout.validation_share,
        temperature=params.rollout.temperature,
        folders=folders(stage.iteration, stage.prev),
        play=play_settings(params),
        hardware=hardware(params),
        device=params.compute.device,
        threads=params.compute.threads,
        sizes=params.model.sizes if isinstance(params.model, ScratchModel) else {},
        observation_weight=params.sft.observation_weight,
        scratch=stage.scratch,
        require=params.critic.require,
        prior=params.critic.prior,
        ranking=judged_by(read_json(measured)) if measured.exists() else None,
        shards=shards(params.compute),
    )
