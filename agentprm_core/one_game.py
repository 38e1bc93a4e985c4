"""One game, a turn at a time, for somebody who looks on or takes over: what would be done here, what is thought of it.

:class:`Minds` is who plays and who judges: a policy here or behind a server, and a PRM where there is one.
:class:`OneGame` is the game: look, do, go back, play on in another way. Left to itself it plays the episode that
:func:`agentprm_core.search.playing.play_games` plays with the same seed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from agentprm_core.errors import DataError
from agentprm_core.opinions import probabilities
from agentprm_core.policy.decoding import Decision
from agentprm_core.policy.models import Checkpoint
from agentprm_core.policy.server import Endpoint, ServerPlayer
from agentprm_core.prm.score import score_actions
from agentprm_core.rollout import Player, Start, starts
from agentprm_core.search.best_of_n import Chooser
from agentprm_core.search.decoding_config import DecodingConfig, forms
from agentprm_core.search.playing import Search, beam_search, chooser
from agentprm_core.types import Episode, Game, Turn
from agentprm_core.worlds import Observation, world_spec
from agentprm_core.worlds.base import admits, listed_commands
from agentprm_core.worlds.guarded import Guarded

WAYS = ("greedy", "sample", "best_of_n", "beam")
"""Ways of playing that decide turn by turn. The others choose among whole episodes, or need a world model."""
WON, LOST, OUT_OF_TURNS, OUT_OF_CONTEXT = "won", "lost", "out of turns", "out of context"
"""How a game ends."""
SCORING_TOKENS = 8192
"""Of a pass of the PRM."""


@dataclass(frozen=True, slots=True)
class Option:
    """Something that could be done now."""

    action: str
    chance: float
    """The policy's probability of it, as :mod:`agentprm_core.opinions` has it; NaN of a policy behind a server."""
    q: float
    """The PRM's Q of it; NaN without a PRM."""
    samples: int = 0
    """How many of the samples it was, where actions were sampled."""
    admissible: bool = True


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is thought of one state, and what would be done."""

    options: tuple[Option, ...]
    """The policy's likeliest first; without probabilities the PRM's best first."""
    choice: str
    reason: str
    """What the policy wrote before its action, where it writes reasons."""
    plan: tuple[str, ...] = ()
    """What a beam search would do after the choice."""

    @property
    def chosen(self) -> Option:
        return next(option for option in self.options if option.action == self.choice)


@dataclass(frozen=True)
class Minds:
    """Who plays and who judges."""

    policy: Checkpoint | Endpoint
    prm: Checkpoint | None
    search: Search
    """How it plays; its ``way`` is replaced by the one that is asked for."""

    @property
    def ways(self) -> tuple[str, ...]:
        """Methods that they can play: a server's policy does not search."""
        return ("greedy", "sample") if isinstance(self.policy, Endpoint) else WAYS

    def require(self, way: DecodingConfig) -> None:
        """Raises DataError where they cannot play so; says what to do."""
        if way.method not in WAYS:
            raise DataError(f"{way.name}: not a way to play turn by turn: {forms(self.ways)}")
        if way.is_search and self.prm is None:
            raise DataError(f"{way.name}: a PRM must choose: give --prm")
        if way.is_search and isinstance(self.policy, Endpoint):
            raise DataError(f"{way.name}: a policy behind a server plays greedy or sample")
        if way.method == "beam" and not world_spec(self.search.settings.world).clones:
            raise DataError(f"{way.name}: the world {self.search.settings.world} cannot be cloned: play best_of_16")

    def player(self, way: DecodingConfig, start: Start) -> Player:
        """Who decides turn by turn, with one seat."""
        search = replace(self.search, way=way)
        settings = search.settings
        if isinstance(self.policy, Endpoint):
            room = {"context": settings.context, "max_action_tokens": settings.max_action_tokens}
            return ServerPlayer(self.policy, seats=1, temperature=search.sampling, **room)
        sampler = settings.sampler(self.policy, search.sampling, 1)
        if way.method != "best_of_n":
            return sampler
        scorer = chooser(self.policy, self.prm, sampler, [start], search)
        return Chooser(sampler, scorer, way.n, search.prior)

    def planned(self, way: DecodingConfig, start: Start) -> list[Turn]:
        """What a beam search does from where ``start`` leads to the end."""
        assert isinstance(self.policy, Checkpoint)
        search = replace(self.search, way=way)
        sampler = search.settings.sampler(self.policy, search.sampling, way.width)
        scorer = chooser(self.policy, self.prm, sampler, [start], search)
        (episode,) = beam_search(sampler, scorer, search).search([start], **search.settings.worlds)
        return list(episode.turns[len(start.actions) :])

    def options(
        self, before: Sequence[Turn], seen: Observation, asked: Sequence[str] = (), reason: str = ""
    ) -> list[Option]:
        """Of the admissible commands and of ``asked``, after the turns ``before`` and after ``reason`` was written."""
        judged = list(dict.fromkeys([*listed_commands(seen.admissible), *asked]))
        if not judged:
            return []
        here = Turn(seen.text, judged[0], seen.admissible, True, "", reason)
        episode = Episode("", 0, 0, (*before, here), won=False)
        found = [
            Option(action, chance, q, admissible=admits(seen.admissible, action))
            for action, chance, q in zip(judged, self._chances(episode, judged), self._scores(episode, judged))
        ]
        return sorted(found, key=lambda option: (-_known(option.chance), -_known(option.q), option.action))

    def _chances(self, episode: Episode, judged: Sequence[str]) -> list[float]:
        """At the episode's last state."""
        if isinstance(self.policy, Endpoint):
            return [math.nan] * len(judged)
        tried = [*([()] * (episode.length - 1)), judged]
        return probabilities(self.policy, episode, tried, self.search.settings.constrained)[-1]

    def _scores(self, episode: Episode, judged: Sequence[str]) -> list[float]:
        """At the episode's last state."""
        if self.prm is None:
            return [math.nan] * len(judged)
        last, reason = episode.length - 1, episode.turns[-1].reason
        asked = [(last, action, reason) for action in judged]
        (q_M,) = score_actions(self.prm.model, self.prm.renderer, [episode], [asked], SCORING_TOKENS)
        return q_M.tolist()


@dataclass(frozen=True, slots=True)
class Step:
    """One turn that was played."""

    turn: Turn
    outlook: Outlook | None
    """What was thought before it, where somebody looked."""
    by: str
    """``policy``, or ``you``."""


class OneGame:
    """A game that is being played."""

    def __init__(self, minds: Minds, game: Game, way: DecodingConfig, *, seed: int = 1) -> None:
        """At its first state. Raises DataError where the minds cannot play ``way``, or the world not ``game``."""
        minds.require(way)
        self.game, self.steps = game, list[Step]()
        self._minds, self._way = minds, way
        (self._start,) = starts([game], 1, seed)
        self._spec = world_spec(minds.search.settings.world)
        self._success = self._spec.of(game).success
        self._world = Guarded(minds.search.settings.world)
        self.seen = self._world.reset(game)
        self._before: list[tuple[Guarded | None, Observation]] = []
        self._seats: dict[str, tuple[Player, int]] = {}
        self._plan: list[Turn] = []
        self._outlook: Outlook | None = None
        self._full = False

    @property
    def way(self) -> DecodingConfig:
        """How it is played."""
        return self._way

    @way.setter
    def way(self, way: DecodingConfig) -> None:
        self._minds.require(way)
        self._way, self._outlook, self._plan = way, None, []

    @property
    def turns(self) -> tuple[Turn, ...]:
        return tuple(step.turn for step in self.steps)

    @property
    def max_turns(self) -> int:
        return self._spec.turns(self.game, self._minds.search.settings.max_turns)

    @property
    def ended(self) -> str:
        """How it has ended; empty while it goes on."""
        if self.seen.done or self.seen.reward >= self._success:
            return WON if self.seen.reward >= self._success else LOST
        if len(self.steps) == self.max_turns:
            return OUT_OF_TURNS
        return OUT_OF_CONTEXT if self._full else ""

    def look(self) -> Outlook | None:
        """What would be done here; None where the game has ended, or ends because there is no room to read on.

        Raises :class:`agentprm_core.policy.requests.ServerError` of a policy behind a server that has gone; the game
        stays where it is, and looking again asks again.
        """
        if self._outlook is None and not self.ended:
            decisions = self._planned() if self._way.method == "beam" else self._decided()
            if decisions:
                self._outlook = self._thought(decisions)
        return self._outlook

    def judge(self, command: str) -> Option:
        """What is thought of any command here."""
        found = self._minds.options(self.turns, self.seen, [command])
        return next(option for option in found if option.action == command)

    def do(self, action: str, reason: str = "", by: str = "policy") -> None:
        """Play ``action``. Raises ValueError where the game has ended, and DataError for a world that breaks the
        contract; the game then stays where it is."""
        if self.ended:
            raise ValueError(f"{self.game.id} has ended: {self.ended}")
        seen = self.seen
        valid = admits(seen.admissible, action)
        turn = Turn(seen.text, action, seen.admissible, valid, self._world.state_key(), reason)
        clone = self._world.clone() if self._spec.clones else None
        reached = (clone or self._world).step(action)
        if clone:
            self._world.require_clones(turn.state_key)  # else going back would lead elsewhere
        self._before.append((self._world if clone else None, seen))
        self.steps.append(Step(turn, self._outlook, by))
        self._world, self.seen = clone or self._world, reached
        self._outlook = None
        self._plan = self._plan[1:] if self._plan and self._plan[0].action == action else []
        goes_on = not self.ended
        for player, seat in self._seats.values():
            player.tell(seat, action, reason)
            if goes_on and not player.see(seat, self.seen.text, self.seen.admissible):
                self._full = True

    def back(self, to: int) -> None:
        """To before turn ``to``, counted from 0: a copy of the world from then, or all replayed where it has none."""
        if not 0 <= to < len(self.steps):
            raise ValueError(f"turn {to} is not one of the {len(self.steps)} that were played")
        self._leave()
        world, self.seen = self._before[to]
        done = self.turns[:to]
        del self.steps[to:], self._before[to:]
        self._plan, self._full, self._outlook = [], False, None
        self._world = world or self._replayed(done)

    def close(self) -> None:
        """Give up seats and connections."""
        self._leave()

    def episode(self) -> Episode:
        """What was played so far."""
        won = self.seen.reward >= self._success
        extra = {"reward": self.seen.reward, "truncated": self._full}
        return Episode(self.game.id, 0, self._start.seed, self.turns, won, **extra)

    def _decided(self) -> tuple[Decision, ...]:
        player, seat = self._seat()
        if self._full:
            return ()
        player.ask(seat)
        while True:
            for ready, decisions in player.tick():
                if ready == seat:
                    return decisions

    def _planned(self) -> tuple[Decision, ...]:
        if not self._plan:
            actions, reasons = zip(*((turn.action, turn.reason) for turn in self.turns)) if self.steps else ((), ())
            self._plan = self._minds.planned(self._way, replace(self._start, actions=actions, reasons=reasons))
            self._full = not self._plan
        return tuple(Decision(turn.action, turn.reason, math.nan) for turn in self._plan[:1])

    def _thought(self, decisions: Sequence[Decision]) -> Outlook:
        samples: dict[str, int] = {}
        for decision in decisions:
            samples[decision.action] = samples.get(decision.action, 0) + decision.count
        options = self._minds.options(self.turns, self.seen, list(samples), decisions[0].reason)
        if self._way.method == "best_of_n":
            options = [replace(option, samples=samples.get(option.action, 0)) for option in options]
        plan = tuple(turn.action for turn in self._plan[1:])
        return Outlook(tuple(options), decisions[0].action, decisions[0].reason, plan)

    def _seat(self) -> tuple[Player, int]:
        """Of who plays so, having read all that has happened."""
        if self._way.name not in self._seats:
            player = self._minds.player(self._way, self._start)
            seat = player.open(self._start.seed)
            self._seats[self._way.name] = player, seat
            for turn in self.turns:
                player.see(seat, turn.observation, turn.admissible)
                player.tell(seat, turn.action, turn.reason)
            self._full = not player.see(seat, self.seen.text, self.seen.admissible)
        return self._seats[self._way.name]

    def _leave(self) -> None:
        for player, seat in self._seats.values():
            player.close(seat)
            if isinstance(player, ServerPlayer):
                player.shut_down()
        self._seats.clear()

    def _replayed(self, done: Sequence[Turn]) -> Guarded:
        world = Guarded(self._minds.search.settings.world)
        world.reset(self.game)
        for turn in done:
            world.step(turn.action)
        return world


def _known(value: float) -> float:
    return -math.inf if math.isnan(value) else value
