"""What watches an update of the policy for reward hacking: ``policy.monitor`` of params.yaml.

The probe are episodes of the games held out from the PRM. The second opinion is a PRM trained with plain cross-entropy
on just those games' labels, from the same trunk: it has seen no game that the PRM has. Held-out games are also what is
played, where games are.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentprm_core.datasets import games_from_table, read_table
from agentprm_core.improve.monitor import described, verdict
from agentprm_core.improve.online_dpo import DpoSettings, new_proposer
from agentprm_core.improve.watch import Probe, Returns, Watch
from agentprm_core.policy.models import Checkpoint
from agentprm_core.prm.model import new_prm
from agentprm_core.prm.rows import Labelled
from agentprm_core.prm.train import PrmSettings, train_prm
from agentprm_core.rollout import play, starts
from agentprm_core.types import GAMES, Episode
from tasks.frame import layout
from tasks.frame.compute import training_settings
from tasks.frame.stage import Stage
from tasks.prm import labelled
from tasks.rollout import new_sampler

TAG = "reward_hacking"
"""On the MLflow run of the stage: ``none``, or the signals that fired with their steps."""


def watch(stage: Stage, policy: Checkpoint, prm: Checkpoint, settings: DpoSettings) -> list[Watch]:
    """The callback of the update that is to be watched; none where ``policy.monitor.every`` is 0."""
    section = stage.params.policy.monitor
    if not section.every:
        return []
    _, held_out = labelled(stage)
    first = {item.episode.game_id: item.episode for item in reversed(held_out)}
    ids = sorted(first)
    probe = Probe(
        [first[game_id] for game_id in ids[: section.episodes]],
        new_proposer(policy, settings),
        prm,
        samples=settings.samples,
        batch_tokens=settings.batch_tokens,
        seed=stage.seed,
        auditor=_auditor(stage, policy, held_out) if section.auditor else None,
        **_played(stage, policy, ids[: section.games]),
    )
    return [Watch(probe, every=section.every, stop=section.stop)]


def tell(stage: Stage, found: dict) -> None:
    """A verdict, where people look: a line of the stage, a tag and curves in MLflow."""
    said = described(found)
    if found["flag"]:
        print(f"{stage.name}: reward hacking suspected: {said}", flush=True)
    with stage.tracking():
        stage.tracker.tag(TAG, said)
        stage.tracker.log_curve("monitor", found["looks"])


def judged(watching: Sequence[Watch]) -> dict:
    """``monitor`` among the figures of an update, if it was watched."""
    return {"monitor": verdict(watching[0].looks)} if watching else {}


def _auditor(stage: Stage, policy: Checkpoint, held_out: Sequence[Labelled]) -> Checkpoint:
    section = stage.params.prm
    settings = PrmSettings(
        **{**training_settings(stage, section), "save_every": 0},
        epochs=section.epochs,
    )
    model, _ = train_prm(
        held_out, policy.renderer, new_prm(policy.model, section.likelihood), settings, stage.scratch / "auditor"
    )
    return Checkpoint(model.eval(), policy.tokenizer, policy.renderer, "")


def _played(stage: Stage, policy: Checkpoint, ids: Sequence[str]) -> dict:
    """How to play these games, the same way each time, and how to count what comes of it."""
    if not ids:
        return {}
    params, wanted = stage.params, set(ids)
    games = [game for game in games_from_table(read_table(layout.games("train"), GAMES)) if game.id in wanted]
    begun = starts(games, 1, stage.seed)

    def again() -> list[Episode]:
        sampler = new_sampler(stage, policy, params.rollout.temperature)
        return list(play(sampler, begun, world_name=params.env.world, max_turns=params.env.max_turns))

    return {"play": again, "returns": Returns(params.label.gamma, params.label.outcome)}
