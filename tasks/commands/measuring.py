"""What ``agentprm evaluate`` measures: a checkpoint, or a policy behind a server, on the games that are named."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from agentprm_core.datasets import atomic_write
from agentprm_core.errors import DataError
from agentprm_core.evaluate import outcomes_table, summary
from agentprm_core.policy.models import load_checkpoint, measured_where, playing_dtype, require_world
from agentprm_core.policy.server import Endpoint
from agentprm_core.policy.speech import API_KEY
from agentprm_core.search.decoding_config import DecodingConfig
from agentprm_core.search.playing import PlaySettings, Search, play_games, play_served
from agentprm_core.types import Episode, Game
from agentprm_core.worlds import world_of, world_spec
from agentprm_core.worlds.published import find_games, world_of_games
from tasks.commands.generated import MEASURED, generated
from tasks.frame.quiet import quiet

Playing = Callable[[list[Game], Search, int], list[Episode]]
"""Every game once, in this way, from this seed."""
_UNBOUNDED_MB = 1 << 20
"""Here ``--slots`` alone says how many episodes are played at once."""


def measured(arguments: argparse.Namespace) -> dict:
    """One checkpoint on one split, as the command line says. Returns the figures.

    Raises DataError where the context holds the first prompt of no game.
    """
    start = time.perf_counter()
    quiet()
    settle_world(arguments)
    player, search, play = (_served if arguments.server else _here)(arguments)
    games = asked_games(arguments)
    episodes = play(games, search, arguments.seed)
    if episodes and all(episode.truncated and not episode.length for episode in episodes):
        raise DataError(
            f"no game begins: what the world says first fills a context of {search.settings.context} tokens; a larger "
            "--context, or a model that reads more"
        )
    if arguments.out:
        _write(episodes, games, arguments.out)
    constrained = search.settings.constrained
    label = world_spec(arguments.world).label
    names = {"iteration": 0, "method": "", "policy": player, "seed": arguments.seed, "constrained": constrained}
    outcomes = outcomes_table(episodes, games, split=arguments.split, decoding=search.name, label=label, **names)
    (row,) = summary(outcomes)
    told = {name: value for name, value in row.items() if name not in ("iteration", "method", "score")}
    seconds = time.perf_counter() - start
    limits = {"max_turns": search.settings.max_turns, "context": search.settings.context}
    return {**told, **limits, "policy": player, "seconds": seconds}


def _write(episodes: Sequence[Episode], games: Sequence[Game], path: Path) -> None:
    """What became of each game, as JSON."""
    kinds = {game.id: game.kind for game in games}
    rows = [
        {"id": e.game_id, "kind": kinds[e.game_id], "won": e.won, "actions": [turn.action for turn in e.turns]}
        for e in episodes
    ]
    with atomic_write(path) as aside:
        aside.write_text("".join(["[\n", ",\n".join(map(json.dumps, rows)), "\n]\n"]))


def _here(arguments: argparse.Namespace) -> tuple[str, Search, Playing]:
    """The checkpoint's digest, how it is to play, and what plays so."""
    how = {"device": arguments.device, "dtype": playing_dtype(arguments.precision)}
    spec = world_spec(arguments.world)
    policy = load_checkpoint(arguments.policy, plays=True, prompt=spec.prompt, **how)
    prm = load_checkpoint(arguments.prm, plays=True, kind="prm", **how) if arguments.prm else None
    for source, checkpoint in ((arguments.policy, policy), (arguments.prm, prm)):
        if checkpoint is not None:
            require_world(checkpoint, source, arguments.world)
    search = search_from(arguments, policy.model.config.max_position_embeddings, arguments.way)
    return policy.digest, search, partial(play_games, policy, prm)


def _served(arguments: argparse.Namespace) -> tuple[str, Search, Playing]:
    """The same of a policy behind a server, by the name it has there. Nobody constrains what it says."""
    first, *others = arguments.server
    who = {"prompt": world_spec(arguments.world).prompt, "api_key": os.environ.get(API_KEY), "also": tuple(others)}
    there = Endpoint(first, arguments.model, arguments.speech, **who)
    search = search_from(arguments, arguments.context, arguments.way)
    free = replace(search, settings=replace(search.settings, constrained=False))
    return there.model, free, partial(play_served, there)


def asked_games(arguments: argparse.Namespace) -> list[Game]:
    """Those of ``--games``, or generated ones. Raises DataError where there are none."""
    if arguments.games is None:
        count = MEASURED if arguments.limit is None else arguments.limit
        return generated(world_spec(arguments.world), count, arguments.seed, arguments.split)
    return find_games(arguments.world, arguments.games, arguments.split, arguments.limit)


def settle_world(arguments: argparse.Namespace) -> None:
    """Fill in what the command line leaves open: the world of the games, else the policy's; and that world's turns."""
    named = arguments.games and world_of_games(arguments.games, arguments.split)
    trained = measured_where(arguments.policy)
    arguments.world = arguments.world or world_of(named or trained or "alfworld", trained)
    if arguments.max_turns is None:
        arguments.max_turns = world_spec(arguments.world).max_turns


def search_from(arguments: argparse.Namespace, context: int, way: DecodingConfig) -> Search:
    """The way of playing that :func:`tasks.commands.standalone.playing_arguments` say; ``context`` is the model's."""
    settings = PlaySettings(
        world=arguments.world,
        max_turns=arguments.max_turns,
        context=context if arguments.context is None else arguments.context,
        max_action_tokens=arguments.max_action_tokens,
        constrained=not arguments.free,
        slots=arguments.slots,
        cache_mb=_UNBOUNDED_MB,
    )
    return Search(way, settings, arguments.temperature, way.prior(arguments.prior))
