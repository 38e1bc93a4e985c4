"""Demonstrations: a world's expert plays games, with mistakes where they are asked for."""

from __future__ import annotations

import random

from agentprm_core.types import Episode, Game, Turn
from agentprm_core.worlds import world_spec
from agentprm_core.worlds.base import NothingLeft, World, admits, listed_commands


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
) -> Episode:
    """One episode of the expert of ``world_name`` in ``world``: at most ``max_turns`` actions, fewer when the world
    ends it or the expert gives up.

    ``corrupt``: the share of turns at which a random listed command is done instead of the expert's. It goes on
    from what that led to. ``expert``: the name of another than the world's first one.

    Raises DataError for a world without an expert, or without that one.
    """
    make_expert = world_spec(world_name).demonstrator(expert)
    mistakes = random.Random(seed)
    seen = world.reset(game)
    player, turns, done = make_expert(world, game, seed, knowledge), [], None
    while not seen.done and len(turns) < max_turns:
        try:
            action = player.act(seen, done)
        except NothingLeft:
            break
        mistaken = bool(corrupt) and bool(listed_commands(seen.admissible)) and mistakes.random() < corrupt
        done = mistakes.choice(listed_commands(seen.admissible)) if mistaken else action
        turns.append(Turn(seen.text, done, seen.admissible, admits(seen.admissible, done), world.state_key()))
        seen = world.step(done)
    return Episode(
        game.id, 0, seed, tuple(turns), seen.reward >= world_spec(world_name).of(game).success, reward=seen.reward
    )
