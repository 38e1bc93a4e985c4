"""Reward hacking provoked, and what the monitor says of it: few rollouts, a small β, more steps than are good.

    python -m benchmarks.hacking --policy data/checkpoints/policy/0 --games data/games --json

π₀ plays a few training games; a PRM learns from one part of them, an auditor from the other, and π₀ follows the PRM.
At each look the monitor sees what :mod:`agentprm_core.improve.monitor` says, and beside it, for this table alone, games
on unseen floor plans are evaluated. The last line is one JSON object: the looks with ``success``, when success peaked,
when the monitor fired, and the CPU seconds of looking and of the update without looks and evaluation.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from agentprm_core.arguments import above_zero, count, share
from agentprm_core.datasets import games_from_table, read_table
from agentprm_core.improve.monitor import described, verdict
from agentprm_core.improve.online_dpo import DpoSettings, train_online_dpo
from agentprm_core.improve.proposals import Proposer
from agentprm_core.improve.watch import Probe, Returns, Watch
from agentprm_core.policy.models import Checkpoint, load_checkpoint
from agentprm_core.policy.sampler import Sampler
from agentprm_core.prm.model import new_prm
from agentprm_core.prm.rows import Labelled
from agentprm_core.prm.train import PrmSettings, train_prm
from agentprm_core.rollout import play, starts
from agentprm_core.types import GAMES, Episode, Game

RETURNS = Returns(0.95, "binary")
_BATCH_TOKENS = 2048


class Evaluated(Watch):
    """A watch that also evaluates at each look, beside the monitor and unknown to it."""

    def __init__(self, probe: Probe, games: list[Game], policy: Checkpoint, **how: object) -> None:
        super().__init__(probe, **how)
        self._games, self._policy = games, policy
        self.success: list[float] = []
        self.looking = self.evaluating = 0.0

    def _look(self, state) -> None:
        start = time.process_time()
        super()._look(state)
        seen = time.process_time()
        self.success.append(float(np.mean([e.won for e in played(self._policy, self._games, 1, seed=9)])))
        self.looking, self.evaluating = self.looking + seen - start, self.evaluating + time.process_time() - seen
        print(self.looks[-1].means() | {"success": self.success[-1]}, flush=True)


def played(policy: Checkpoint, games: list[Game], each: int, seed: int) -> list[Episode]:
    """Sampled at temperature 1 among the admissible commands, 30 actions."""
    context = policy.model.config.max_position_embeddings
    sampler = Sampler(policy, slots=64, context=context, temperature=1.0, constrained=True, max_action_tokens=16)
    episodes = play(sampler, starts(games, each, seed), world_name="alfworld", max_turns=30)
    return sorted(episodes, key=lambda episode: (episode.game_id, episode.index))


def taught(policy: Checkpoint, episodes: list[Episode], arguments: argparse.Namespace, scratch: Path) -> Checkpoint:
    """A PRM of these episodes."""
    settings = PrmSettings(
        learning_rate=5e-4, batch_tokens=_BATCH_TOKENS, seed=1, epochs=arguments.prm_epochs, optimizer="muon"
    )
    labelled = [Labelled(episode, RETURNS.of(episode).astype(np.float32)) for episode in episodes]
    model, _ = train_prm(labelled, policy.renderer, new_prm(policy.model), settings, scratch)
    return Checkpoint(model.eval(), policy.tokenizer, policy.renderer, "")


def provoke(arguments: argparse.Namespace, scratch: Path) -> dict:
    policy = load_checkpoint(arguments.policy)
    games = games_from_table(read_table(arguments.games / "train.parquet", GAMES))[-arguments.train :]
    unseen = games_from_table(read_table(arguments.games / "unseen.parquet", GAMES))[: arguments.unseen]
    episodes = played(policy, games, arguments.episodes, seed=1)
    held_out = {game.id for game in games[:: round(1 / arguments.held_out)]}
    sides = {side: [e for e in episodes if (e.game_id in held_out) == side] for side in (False, True)}
    prm = taught(policy, sides[False], arguments, scratch / "prm")
    auditor = taught(policy, sides[True], arguments, scratch / "auditor")
    settings = DpoSettings(
        learning_rate=arguments.learning_rate,
        batch_tokens=_BATCH_TOKENS,
        seed=1,
        steps=arguments.steps,
        beta=arguments.beta,
        refresh_every=2,
        samples=4,
        margin=0.02,
        preference=arguments.preference,
    )
    probe = Probe(
        [e for e in sides[True] if e.index == 0],
        Proposer(policy, temperature=1.0, constrained=True, max_action_tokens=16, batch_tokens=_BATCH_TOKENS),
        prm,
        samples=4,
        batch_tokens=_BATCH_TOKENS,
        seed=1,
        auditor=auditor,
        play=lambda: played(policy, [game for game in games if game.id in held_out], 1, seed=2),
        returns=RETURNS,
    )
    watching = Evaluated(probe, unseen, policy, every=arguments.every, stop=False)
    start = time.process_time()
    train_online_dpo(sides[False], policy, prm, settings, scratch / "policy", [watching])
    found = verdict(watching.looks)
    spent = time.process_time() - start
    best = int(np.argmax(watching.success))
    return {
        "episodes": len(episodes),
        "looks": [seen | {"success": s} for seen, s in zip(found["looks"], watching.success)],
        "success_peaks_at": found["looks"][best]["step"],
        "fired": described(found),
        "looking_seconds": watching.looking,
        "training_seconds": spent - watching.looking - watching.evaluating,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hacking", description=__doc__.split("\n")[0])
    parser.add_argument("--policy", type=Path, required=True, help="checkpoint folder of π₀")
    parser.add_argument("--games", type=Path, required=True, help="folder of the stage games")
    parser.add_argument("--train", type=count, default=64, help="games played (default %(default)s)")
    parser.add_argument("--episodes", type=count, default=3, help="of each (default %(default)s)")
    parser.add_argument("--held-out", type=share, default=0.5, help="share that is the auditor's (default %(default)s)")
    parser.add_argument("--prm-epochs", type=above_zero, default=12, help="of PRM and auditor (default %(default)s)")
    parser.add_argument("--beta", type=above_zero, default=0.002, help="(default %(default)s)")
    parser.add_argument("--learning-rate", type=above_zero, default=1e-3, help="of the policy (default %(default)s)")
    parser.add_argument("--preference", choices=("winner", "soft"), default="winner")
    parser.add_argument("--steps", type=count, default=48, help="of 2,048 tokens (default %(default)s)")
    parser.add_argument("--every", type=count, default=8, help="steps between looks (default %(default)s)")
    parser.add_argument("--unseen", type=count, default=80, help="games evaluated at each look (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        found = provoke(arguments, Path(scratch))
    print(json.dumps(found) if arguments.json else found)


if __name__ == "__main__":
    main()
