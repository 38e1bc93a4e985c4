"""Exploration at rollout for a policy that reads no instructions: rarely tried actions are played more often.

    π_c(a|s) ∝ π(a|s) (1 + n(s,a))^(−c)

with n the times (s,a) was played in this game in the rounds before, s being the world's ``state_key``. The counterpart
of paper A's steering prompt (:meth:`agentprm_core.policy.prompt.Renderer.steered`): the actions are still the policy's
own, so they are scored and trained on as any others, and with c = 0 it is the policy itself. π is estimated from
:data:`DRAWS` samples.

Episodes are played in rounds, one of every game at a time, and count for later rounds only. So what an episode
does depends on the episodes of its game with a lower index, and not on who ends first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from agentprm_core.policy.sampler import Cost, Decision, Sampler
from agentprm_core.rollout import Start, play
from agentprm_core.seeding import uniforms
from agentprm_core.types import Episode, Game
from agentprm_core.worlds.guarded import Guarded

DRAWS = 8
"""Samples of a state among which one is picked. Those that agree are decoded once."""
_SALT = 0x0E59


@dataclass(slots=True)
class _Seat:
    seed: int
    world: Guarded
    turn: int = 0


class Explorer:
    """A player that picks among ``sampler``'s samples by how rarely they were played.

    It follows the worlds on its own, from ``games`` by the seeds of their starts.
    """

    def __init__(self, sampler: Sampler, games: Mapping[int, Game], *, bonus: float, world_name: str) -> None:
        """``bonus`` is c. Raises ValueError where it is negative."""
        if bonus < 0:
            raise ValueError(f"exploration {bonus} is negative")
        self.seats = sampler.seats
        self._sampler, self._games, self._bonus, self._world_name = sampler, games, bonus, world_name
        self._seats: dict[int, _Seat] = {}
        self._before: Counter[tuple[str, str, str]] = Counter()
        self._now: Counter[tuple[str, str, str]] = Counter()

    def next_round(self) -> None:
        """What was played so far counts from here on."""
        self._before += self._now
        self._now.clear()

    def open(self, seed: int) -> int:
        seat = self._sampler.open(seed)
        self._seats[seat] = _Seat(seed, Guarded(self._world_name))
        self._seats[seat].world.reset(self._games[seed])
        return seat

    def see(self, seat: int, observation: str, admissible: tuple[str, ...]) -> bool:
        return self._sampler.see(seat, observation, admissible)

    def ask(self, seat: int) -> None:
        self._sampler.ask(seat, DRAWS)

    def tell(self, seat: int, action: str, reason: str = "") -> None:
        self._sampler.tell(seat, action, reason)
        self._seats[seat].world.step(action)
        self._seats[seat].turn += 1

    def tick(self) -> list[tuple[int, tuple[Decision, ...]]]:
        return [(seat, self._picked(self._seats[seat], decisions)) for seat, decisions in self._sampler.tick()]

    def close(self, seat: int) -> Cost:
        del self._seats[seat]
        return self._sampler.close(seat)

    def _picked(self, seat: _Seat, decisions: tuple[Decision, ...]) -> tuple[Decision, ...]:
        """The decisions with the one to play first, and that counted."""
        state = self._games[seat.seed].id, seat.world.state_key()
        tried = [self._before[*state, decision.action] for decision in decisions]
        number = pick([d.count for d in decisions], tried, self._bonus, (seat.seed, seat.turn, _SALT))
        self._now[*state, decisions[number].action] += 1
        return (decisions[number], *decisions[:number], *decisions[number + 1 :])


def pick(drawn: list[int], tried: list[int], bonus: float, key: tuple[int, ...]) -> int:
    """An index with chance ∝ drawn · (1 + tried)^(−bonus), decided by the integers of ``key`` alone."""
    weight = np.array(drawn) * (1.0 + np.array(tried)) ** -bonus
    cumulated = weight.cumsum()
    return int((cumulated <= uniforms([key])[0] * cumulated[-1]).sum())


def play_exploring(
    sampler: Sampler, starts: Iterable[Start], *, bonus: float, world_name: str, max_turns: int
) -> Iterator[Episode]:
    """:func:`agentprm_core.rollout.play` by an :class:`Explorer`, in rounds by the starts' index."""
    starts = sorted(starts, key=lambda start: start.index)
    explorer = Explorer(sampler, {start.seed: start.game for start in starts}, bonus=bonus, world_name=world_name)
    for _, of_round in groupby(starts, key=lambda start: start.index):
        yield from play(explorer, of_round, world_name=world_name, max_turns=max_turns)
        explorer.next_round()
