"""Plays episodes: worlds and a player in one loop, as many at once as the player has seats.

The player may be a policy (:class:`agentprm_core.policy.sampler.Sampler`), a search over its samples
(:mod:`agentprm_core.search`) or a server (:mod:`agentprm_core.policy.server`). A seat is filled again as soon as its
episode ends. What an episode does depends on its own :class:`Start` and on nothing else that is played beside it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tqdm import tqdm

from agentprm_core.envs import Observation, World, make_world
from agentprm_core.policy.models import Policy
from agentprm_core.policy.sampler import Decision, Sampler
from agentprm_core.types import Episode, Game, Turn


class Player(Protocol):
    """Who decides: see, ask, and after some ticks the decision; tell what was played."""

    seats: int
    """How many episodes it plays at once."""

    def open(self, seed: int) -> int:
        """A seat for a new episode."""

    def see(self, seat: int, observation: str, admissible: tuple[str, ...]) -> bool:
        """Read an observation; False where the context has no room for it and an action."""

    def ask(self, seat: int) -> None:
        """Ask for an action in the state last seen."""

    def tell(self, seat: int, action: str, reason: str = "") -> None:
        """The action that was played, decided or not."""

    def tick(self) -> list[tuple[int, tuple[Decision, ...]]]:
        """Work a little; the seats that have decided, each with its choice first."""

    def close(self, seat: int) -> None:
        """The episode is over."""


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


@dataclass(slots=True)
class _Play:
    start: Start
    world: World
    observation: Observation
    turns: list[Turn] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)


def rollout(
    policy: Policy,
    games: Sequence[Game],
    *,
    episodes_per_game: int,
    max_turns: int,
    temperature: float,
    constrained: bool,
    seed: int,
    engine: str = "fast",
    slots: int = 64,
    context: int = 512,
    max_action_tokens: int = 16,
    progress: bool = False,
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
    return play(sampler, starts(games, episodes_per_game, seed), engine=engine, max_turns=max_turns, progress=progress)


def starts(games: Sequence[Game], episodes_per_game: int, seed: int) -> list[Start]:
    """Starts at the games' first states; each episode's seed follows from ``seed``, its game and its index."""
    return [
        Start(game, index, episode_seed(seed, game.id, index)) for game in games for index in range(episodes_per_game)
    ]


def episode_seed(seed: int, *names: str | int) -> int:
    """A seed of 63 bits from ``seed`` and what names the episode, the same on every machine."""
    digest = hashlib.blake2b(repr((seed, *names)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def play(
    player: Player, starts: Iterable[Start], *, engine: str, max_turns: int, progress: bool = False
) -> Iterator[Episode]:
    """The episodes of ``starts`` in the order in which they end: won, ``max_turns`` actions (replayed ones count), or
    the context full (``truncated``). An episode won while it is replayed ends there.

    ``Episode.extra["log_probs"]`` holds the log-probability of each decided action, as the player gives it.
    """
    starts = list(starts)
    waiting = iter(starts)
    playing: dict[int, _Play] = {}
    with tqdm(total=len(starts), unit="episode", disable=None if progress else True) as bar:
        while True:
            for start in _fill(player, playing, waiting):
                episode = _begin(player, start, engine, max_turns, playing)
                if episode is not None:
                    bar.update()
                    yield episode
            if not playing:
                return
            for seat, decisions in player.tick():
                episode = _act(player, seat, playing[seat], decisions[0], max_turns)
                if episode is not None:
                    player.close(seat)
                    del playing[seat]
                    bar.update()
                    yield episode


def _fill(player: Player, playing: dict[int, _Play], waiting: Iterator[Start]) -> Iterator[Start]:
    while len(playing) < player.seats:
        start = next(waiting, None)
        if start is None:
            return
        yield start


def _begin(player: Player, start: Start, engine: str, max_turns: int, playing: dict[int, _Play]) -> Episode | None:
    """Set the world up, replay, and ask; the whole episode where nothing is left to ask."""
    world = make_world(engine)
    playing_now = _Play(start, world, world.reset(start.game))
    seat = player.open(start.seed)
    given = start.actions if start.first is None else (*start.actions, start.first)
    for action in given:
        if not player.see(seat, playing_now.observation.text, playing_now.observation.admissible):
            player.close(seat)
            return _end(playing_now, truncated=True)
        player.tell(seat, action)
        _step(playing_now, action, "")
        if playing_now.observation.won or len(playing_now.turns) == max_turns:
            player.close(seat)
            return _end(playing_now)
    if not player.see(seat, playing_now.observation.text, playing_now.observation.admissible):
        player.close(seat)
        return _end(playing_now, truncated=True)
    player.ask(seat)
    playing[seat] = playing_now
    return None


def _act(player: Player, seat: int, playing: _Play, decision: Decision, max_turns: int) -> Episode | None:
    """Play a decision; the whole episode if it ends with it."""
    player.tell(seat, decision.action, decision.reason)
    _step(playing, decision.action, decision.reason)
    playing.log_probs.append(decision.log_prob)
    if playing.observation.won or len(playing.turns) == max_turns:
        return _end(playing)
    if not player.see(seat, playing.observation.text, playing.observation.admissible):
        return _end(playing, truncated=True)
    player.ask(seat)
    return None


def _step(playing: _Play, action: str, reason: str) -> None:
    before = playing.observation
    valid = action in before.admissible
    playing.turns.append(Turn(before.text, action, before.admissible, valid, playing.world.state_key(), reason))
    playing.observation = playing.world.step(action)


def _end(playing: _Play, truncated: bool = False) -> Episode:
    start = playing.start
    return Episode(
        game_id=start.game.id,
        index=start.index,
        seed=start.seed,
        turns=tuple(playing.turns),
        won=playing.observation.won,
        truncated=truncated,
        start=min(len(start.actions), len(playing.turns)),
        extra={"log_probs": tuple(playing.log_probs)},
    )
