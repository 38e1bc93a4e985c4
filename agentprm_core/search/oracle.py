"""The true Q of an action, by playing on from it in the game itself.

Best-of-N with it is the headroom of a policy: the success that choosing among its own samples can give at all. Where it
is small, no PRM helps, and fluency, diversity or capacity come first. Where it is large, a PRM may still not reach it:
the plays go on in a world where every hidden thing already has its place, and a PRM reads only what the agent saw.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from agentprm_core.policy.sampler import Decision, Sampler
from agentprm_core.rollout import Start, play
from agentprm_core.seeding import episode_seed
from agentprm_core.types import Game

_Said = tuple[tuple[str, str], ...]
"""The actions of a conversation so far, each with its reason."""


class TrueQ:
    """A scorer: the mean of γ^{T−1−t} · R over ``plays`` continuations of each candidate by ``sampler``.

    It knows the game behind each conversation by its seed: ``games`` are the games of the episodes' starts, by the
    starts' seeds. The sampler must be another one than the player's. The reasons of a conversation are told again, the
    candidate's too, so a play goes on from what its player has said.

    ``steps``: by seed, the actions that the continuations did in worlds, replayed ones too.
    """

    def __init__(
        self,
        sampler: Sampler,
        games: Mapping[int, Game],
        *,
        plays: int,
        gamma: float,
        world_name: str,
        max_turns: int,
    ) -> None:
        if plays < 1:
            raise ValueError(f"a value needs at least one play, not {plays}")
        self._sampler, self._games = sampler, games
        self._plays, self._gamma, self._world_name, self._max_turns = plays, gamma, world_name, max_turns
        self.steps: Counter[int] = Counter()
        self._told: dict[int, tuple[int, _Said]] = {}
        self._read: Counter[int] = Counter()
        self._next = 0

    def open(self, seed: int) -> int:
        return self._keep(seed, ())

    def fork(self, seat: int) -> int:
        return self._keep(*self._told[seat])

    def see(self, seat: int, observation: str, admissible: tuple[str, ...]) -> bool:
        return True

    def tell(self, seat: int, action: str, reason: str = "") -> None:
        seed, told = self._told[seat]
        self._told[seat] = (seed, (*told, (action, reason)))

    def close(self, seat: int) -> int:
        del self._told[seat]
        return self._read.pop(seat, 0)

    def score(self, asked: Sequence[tuple[int, Sequence[Decision]]]) -> list[list[float]]:
        """All continuations of all candidates in one run of the rollout loop."""
        starts, places = [], []
        for number, (seat, candidates) in enumerate(asked):
            seed, told = self._told[seat]
            actions, before = tuple(action for action, _ in told), tuple(reason for _, reason in told)
            for choice, candidate in enumerate(candidates):
                first, reasons = candidate.action, (*before, candidate.reason)
                for k in range(self._plays):
                    branch = episode_seed(seed, len(told), first, k)
                    starts.append(Start(self._games[seed], len(starts), branch, actions, first, reasons))
                    places.append((number, choice, seat))
        scores = [[0.0] * len(candidates) for _, candidates in asked]
        for episode in play(self._sampler, starts, world_name=self._world_name, max_turns=self._max_turns):
            number, choice, seat = places[episode.index]
            after = episode.length - 1 - episode.start
            scores[number][choice] += episode.reward * self._gamma**after / self._plays
            self._read[seat] += episode.extra["cost"].policy_read
            self.steps[self._told[seat][0]] += episode.length
        return scores

    def _keep(self, seed: int, told: _Said) -> int:
        self._next += 1
        self._told[self._next] = (seed, told)
        return self._next
