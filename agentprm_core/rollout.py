"""Plays episodes: worlds and a player in one loop, as many at once as the player has seats.

The player may be a policy (:class:`agentprm_core.policy.sampler.Sampler`), a search over its samples
(:mod:`agentprm_core.search`) or a server (:mod:`agentprm_core.policy.server`). A seat is filled again as soon as its
episode ends. What an episode does depends on its own :class:`Start` and on nothing else that is played beside it.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from agentprm_core.policy.models import Checkpoint
from agentprm_core.policy.sampler import Cost, Decision, Sampler
from agentprm_core.progress import Progress, progress, watcher
from agentprm_core.seeding import episode_seed
from agentprm_core.types import Episode, Game, Turn
from agentprm_core.worlds import Observation, WorldSpec, world_spec
from agentprm_core.worlds.base import admits
from agentprm_core.worlds.guarded import Guarded

YOUNG = 10_000
"""New objects between two collections while episodes are played; Python's 700 are fewer than one tick makes."""


class Player(Protocol):
    """Who decides: see, ask, and after some ticks the decision; tell what was played."""

    seats: int
    """How many episodes it plays at once."""

    def open(self, seed: int) -> int:
        """A seat for a new episode."""
        ...

    def see(self, seat: int, observation: str, admissible: tuple[str, ...]) -> bool:
        """Read an observation; False where the context has no room for it and an action."""
        ...

    def ask(self, seat: int) -> None:
        """Ask for an action in the state last seen."""
        ...

    def tell(self, seat: int, action: str, reason: str = "") -> None:
        """The action that was played, decided or not."""
        ...

    def tick(self) -> list[tuple[int, tuple[Decision, ...]]]:
        """Work a little; the seats that have decided, each with its choice first."""
        ...

    def close(self, seat: int) -> Cost:
        """The episode is over; what it cost."""
        ...


@dataclass(frozen=True, slots=True)
class Start:
    """Where an episode begins: a game, and actions that are played before the player is asked."""

    game: Game
    index: int
    seed: int
    actions: tuple[str, ...] = ()
    """Replayed from the game's first state: a reset distribution, or the path to a branch point."""
    first: str | None = None
    """The first action after those, played without asking but the player's own: a branch to be valued."""
    reasons: tuple[str, ...] = ()
    """What was written before each of ``actions``, told again: the conversation is the same. One more is written before
    ``first``. Where there is none, nothing was."""

    def given(self, turn: int) -> tuple[str, str] | None:
        """The action of ``turn`` and its reason, where they are not for the player to decide."""
        reason = self.reasons[turn] if turn < len(self.reasons) else ""
        if turn < len(self.actions):
            return self.actions[turn], reason
        return (self.first, reason) if turn == len(self.actions) and self.first is not None else None


@dataclass(slots=True)
class _Play:
    start: Start
    world: Guarded
    observation: Observation
    turns: list[Turn] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)


def rollout(
    policy: Checkpoint,
    games: Sequence[Game],
    *,
    episodes_per_game: int,
    max_turns: int,
    temperature: float,
    constrained: bool,
    seed: int,
    world_name: str = "alfworld",
    slots: int = 64,
    context: int = 512,
    max_action_tokens: int = 16,
) -> Iterator[Episode]:
    """``episodes_per_game`` episodes of every game, in the order in which they end."""
    sampler = Sampler(
        policy,
        slots=slots,
        context=context,
        temperature=temperature,
        constrained=constrained,
        max_action_tokens=max_action_tokens,
    )
    return play(sampler, starts(games, episodes_per_game, seed), world_name=world_name, max_turns=max_turns)


def starts(games: Sequence[Game], episodes_per_game: int, seed: int) -> list[Start]:
    """Starts at the games' first states; each episode's seed follows from ``seed``, its game and its index."""
    return [
        Start(game, index, episode_seed(seed, game.id, index)) for game in games for index in range(episodes_per_game)
    ]


def play(player: Player, starts: Iterable[Start], *, world_name: str, max_turns: int) -> Iterator[Episode]:
    """The episodes of ``starts`` in the order in which they end: the world is done, ``max_turns`` actions were played
    (replayed ones count; in a mixture of worlds no more than the game's world allows), or the context is full
    (``truncated``). One that is done while it is replayed ends there.

    ``Episode.extra`` holds ``log_probs``, of each decided action as the player gives it, and ``cost``, the player's.

    Raises DataError where the world raises, or pays a reward that is not in [0, 1].
    """
    spec = world_spec(world_name)
    starts = list(starts)
    waiting = iter(starts)
    playing: dict[int, _Play] = {}
    with settled_heap(), progress(len(starts), "episode") as bar:
        try:
            while True:
                while len(playing) < player.seats and (start := next(waiting, None)) is not None:
                    world, seat = Guarded(world_name), player.open(start.seed)
                    playing[seat] = _Play(start, world, world.reset(start.game))
                    yield from _ended(player, seat, playing, max_turns, bar, spec)
                if not playing:
                    return
                decided = player.tick()
                if spec.remote:
                    for seat, decisions in decided:
                        playing[seat].world.begin(decisions[0].action)
                for seat, decisions in decided:
                    chosen = decisions[0]
                    playing[seat].log_probs.append(chosen.log_prob)
                    _step(player, seat, playing[seat], chosen.action, chosen.reason)
                    watcher().turns(1)
                    yield from _ended(player, seat, playing, max_turns, bar, spec)
        finally:  # the player outlives an episode that failed and a caller that has seen enough
            for seat in playing:
                player.close(seat)


@contextmanager
def settled_heap() -> Iterator[None]:
    """Spare the garbage collector what is there already: episodes make garbage fast, and each full collection would
    walk through all that the imported packages hold. And what lives for a tick: it is gone before a collection."""
    young, *older = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(max(young, YOUNG), *older)
    try:
        yield
    finally:
        gc.set_threshold(young, *older)
        gc.unfreeze()


def _ended(
    player: Player, seat: int, playing: dict[int, _Play], max_turns: int, bar: Progress, spec: WorldSpec
) -> Iterator[Episode]:
    """Go on to the next decision; the episode if it ends before one."""
    play = playing[seat]
    game = play.start.game
    truncated = _go_on(player, seat, play, spec.turns(game, max_turns))
    if truncated is None:
        return
    del playing[seat]
    bar.update()
    episode = _episode(play, truncated, player.close(seat), spec.of(game).success)
    watcher().episode(episode.won, episode.extra["cost"].generated + episode.extra["cost"].policy_read)
    yield episode


def _go_on(player: Player, seat: int, play: _Play, max_turns: int) -> bool | None:
    """Replay what is to be replayed and ask for what comes then (None), or whether the end before it is by context."""
    while True:
        seen = play.observation
        if seen.done or len(play.turns) == max_turns:
            return False
        if not player.see(seat, seen.text, seen.admissible):
            return True
        given = play.start.given(len(play.turns))
        if given is None:
            player.ask(seat)
            return None
        _step(player, seat, play, *given)


def _step(player: Player, seat: int, play: _Play, action: str, reason: str) -> None:
    player.tell(seat, action, reason)
    seen = play.observation
    valid = admits(seen.admissible, action)
    play.turns.append(Turn(seen.text, action, seen.admissible, valid, play.world.state_key(), reason))
    play.observation = play.world.step(action)


def _episode(play: _Play, truncated: bool, cost: Cost, success: float) -> Episode:
    start = play.start
    return Episode(
        game_id=start.game.id,
        index=start.index,
        seed=start.seed,
        turns=tuple(play.turns),
        won=play.observation.reward >= success,
        reward=play.observation.reward,
        truncated=truncated,
        start=min(len(start.actions), len(play.turns)),
        extra={"log_probs": tuple(play.log_probs), "cost": cost},
    )
