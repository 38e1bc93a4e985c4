"""Demonstrations: a world's expert plays games, with mistakes where they are asked for."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from agentprm_core.errors import EXPECTED, DataError
from agentprm_core.types import Episode, Game, Turn
from agentprm_core.worlds import world_spec
from agentprm_core.worlds.base import NothingLeft, World, admits, advice_of, listed_commands
from agentprm_core.worlds.guarded import Guarded
from agentprm_core.worlds.raised import said_of


@contextmanager
def _asking(world_name: str, game: Game, turns: Sequence[Turn]) -> Iterator[None]:
    """Within the block, what an expert raises is a DataError that says where, but :class:`NothingLeft`."""
    try:
        yield
    except (*EXPECTED, NothingLeft):
        raise
    except Exception as error:  # a stranger's expert may raise anything
        raise DataError(
            f"{world_name}, {game.id}, turn {len(turns) + 1}: the expert raised {said_of(error)}; run "
            f"agentprm check-world {world_name}"
        ) from error


def demonstrate(
    world: World,
    game: Game,
    *,
    world_name: str,
    max_turns: int,
    seed: int,
    knowledge: float,
    corrupt: float = 0.0,
    expert: str | None = None,
    before: Sequence[str] = (),
) -> Episode:
    """One episode of the expert of ``world_name`` in ``world``: at most ``max_turns`` actions, fewer when the world
    ends it or the expert gives up.

    ``corrupt``: the share of turns at which a random listed command is done instead of the expert's. It goes on
    from what that led to. ``expert``: the name of another than the world's first one. ``before``: what somebody else
    did first. The expert goes on from there, and these are the turns before ``Episode.start``.

    Raises DataError for a world without an expert, or without that one, and for a world or an expert that raises
    or returns no command.
    """
    make_expert = world_spec(world_name).demonstrator(expert)
    mistakes = random.Random(seed)
    guarded = Guarded(world_name, world)
    seen = guarded.reset(game)
    turns, done = [], None
    with _asking(world_name, game, turns):
        player = make_expert(world, game, seed, knowledge)
    while not seen.done and len(turns) < max_turns:
        given = before[len(turns)] if len(turns) < len(before) else None
        try:
            with _asking(world_name, game, turns):
                action = advice_of(player, seen, done)
        except NothingLeft:
            if given is None:
                break
            action = ""  # what it would have done here is not asked for
        if given is not None:
            action = given
        elif corrupt and listed_commands(seen.admissible) and mistakes.random() < corrupt:
            action = mistakes.choice(listed_commands(seen.admissible))
        done = action
        turns.append(Turn(seen.text, done, seen.admissible, admits(seen.admissible, done), guarded.state_key()))
        seen = guarded.step(done)
    won = seen.reward >= world_spec(world_name).of(game).success
    return Episode(game.id, 0, seed, tuple(turns), won, reward=seen.reward, start=min(len(before), len(turns)))


def none_won(played: Sequence[Episode], world_name: str) -> str:
    """That the expert won none of these, and what it did that is not admissible."""
    done = [(episode.game_id, t, turn) for episode in played for t, turn in enumerate(episode.turns, start=1)]
    idle = [f"the first is {turn.action!r} in {game_id}, turn {t}" for game_id, t, turn in done if not turn.valid]
    said = f"the expert won none of {len(played)} games in {len(done)} actions"
    said += f", {len(idle)} of them not admissible: {idle[0]}" if idle else ""
    return f"{said}; run agentprm check-world {world_name}"
