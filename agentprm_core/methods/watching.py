"""What watches an update for reward hacking, and changes no weight unless it is to stop the update.

The probe are episodes of the games held out from the PRM. The second opinion is a PRM trained with plain cross-entropy
on just those games' labels, from the same trunk: it has seen no game that the PRM has. Held-out games are also what is
played, where games are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from agentprm_core.config import Count, CountOrNone, Range
from agentprm_core.improve.monitor import GAMMA
from agentprm_core.improve.online_dpo import DpoSettings, new_proposer
from agentprm_core.improve.watch import Probe, Returns, Watch
from agentprm_core.methods.base import Given
from agentprm_core.methods.critic_base import labelled_sides
from agentprm_core.policy.models import Checkpoint
from agentprm_core.prm.dataset import Labelled
from agentprm_core.prm.model import likelihood_weight, new_prm
from agentprm_core.prm.train import PrmSettings, train_prm
from agentprm_core.rollout import play, starts
from agentprm_core.types import Episode


@dataclass(frozen=True)
class Monitor:
    """Does the policy get better, or only better liked by the PRM?"""

    every: Count
    """Optimizer steps between looks."""
    episodes: Annotated[int, Range(ge=2)]
    """Of held-out games: the probe whose states actions are drawn at."""
    auditor: bool
    """Whether a second PRM is trained, on the held-out games alone."""
    games: CountOrNone
    """Held-out games that are played at each look, to see whether what the PRM believes comes true."""
    stop: bool
    """Whether the update ends at the first look that raises the flag."""


def watch(monitor: Monitor, given: Given, settings: DpoSettings) -> list[Watch]:
    """The callback of the update that is to be watched. Make it before training: the policy is π_{i−1} then."""
    _, held_out = labelled_sides(given, gamma=GAMMA, outcome="binary")
    first = {item.episode.game_id: item.episode for item in reversed(held_out)}
    ids = sorted(first)
    probe = Probe(
        [first[game_id] for game_id in ids[: monitor.episodes]],
        new_proposer(given.trainee, settings),
        given.prm,
        samples=settings.samples,
        batch_tokens=settings.batch_tokens,
        seed=given.seed,
        auditor=_auditor(given, settings, held_out) if monitor.auditor else None,
        **_played(given, ids[: monitor.games]),
    )
    return [Watch(probe, every=monitor.every, stop=monitor.stop)]


def _auditor(given: Given, settings: DpoSettings, held_out: Sequence[Labelled]) -> Checkpoint:
    """A PRM like the one that is followed, of one pass over the held-out games."""
    hardware = given.hardware.settings(
        learning_rate=settings.learning_rate, batch_tokens=settings.batch_tokens, seed=given.seed, alone=True
    )
    chosen = replace(PrmSettings(**hardware, epochs=1), save_every=0)
    start = new_prm(given.trainee.model, likelihood_weight(given.prm.model))
    model, _ = train_prm(held_out, given.trainee.renderer, start, chosen, given.scratch / "auditor")
    return Checkpoint(model.eval(), given.trainee.tokenizer, given.trainee.renderer, "")


def _played(given: Given, ids: Sequence[str]) -> dict:
    """How to play these games, the same way each time, and how to count what comes of it."""
    if not ids:
        return {}
    wanted = set(ids)
    begun = starts([game for game in given.training_games if game.id in wanted], 1, given.seed)

    def again() -> list[Episode]:
        return list(play(given.play.sampler(given.trainee, given.temperature), begun, **given.play.worlds))

    return {"play": again, "returns": Returns(GAMMA, "binary")}
