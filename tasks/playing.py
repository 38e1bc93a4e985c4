"""How a policy plays games it is measured on: one way of decoding, every game once."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agentprm_core.policy.models import Policy
from agentprm_core.policy.sampler import Sampler
from agentprm_core.prm.score import score_episodes
from agentprm_core.rollout import Player, play, starts
from agentprm_core.types import Episode, Game

METHODS = ("greedy", "sample", "best_of_n")
_SCORING_TOKENS = 8192


@dataclass(frozen=True)
class Way:
    """One way of playing. ``best_of_n`` samples ``n`` actions a turn and plays the PRM's best."""

    method: str
    temperature: float
    constrained: bool
    n: int
    engine: str
    max_turns: int
    max_action_tokens: int
    slots: int
    context: int

    @property
    def name(self) -> str:
        """As in the ``decoding`` column: ``best_of_4`` says its n."""
        return f"best_of_{self.n}" if self.method == "best_of_n" else self.method


def play_games(policy: Policy, prm: Policy | None, games: Sequence[Game], way: Way, seed: int) -> list[Episode]:
    """Every game once, sorted by id. Raises ValueError where the method needs a PRM and there is none."""
    if not games:
        return []
    begun = starts(games, 1, seed)
    player = _player(policy, prm, way)
    played = play(player, begun, engine=way.engine, max_turns=way.max_turns, progress=sys.stderr.isatty())
    return sorted(played, key=lambda episode: episode.game_id)


def scores(prm: Policy, episodes: Sequence[Episode]) -> dict[str, float]:
    """{game: mean Q_φ of the episode's actions}."""
    scored = score_episodes(prm.model, prm.renderer, episodes, _SCORING_TOKENS)
    return {episode.game_id: float(np.mean(q_T)) for episode, q_T in zip(episodes, scored)}


def _player(policy: Policy, prm: Policy | None, way: Way) -> Player:
    sampler = Sampler(
        policy,
        slots=way.slots,
        context=min(way.context, policy.model.config.max_position_embeddings),
        temperature=0.0 if way.method == "greedy" else way.temperature,
        constrained=way.constrained,
        max_action_tokens=way.max_action_tokens,
    )
    if way.method != "best_of_n":
        return sampler
    if prm is None:
        raise ValueError("best_of_n needs a PRM to choose")
    from agentprm_core.search.best_of_n import BestOfN

    return BestOfN(sampler, prm, samples=way.n)
