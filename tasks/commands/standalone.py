"""Any checkpoint on any games, without params.yaml:

    python -m tasks.evaluate --policy data/checkpoints/policy/3 --games DIR --split valid_seen --method greedy --json
    python -m tasks.evaluate --server http://localhost:8000/v1 --model agentprm-1 --speech chat --context 8192 \
        --max-action-tokens 64 --games DIR --split valid_seen     # behind vLLM, SGLang, transformers serve

``--games`` is a folder of the world's published games, or one of tables as the stage ``games`` writes them. With
``--json`` the last line is one JSON object. """

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from agentprm_core.arguments import above_zero, at_least, count, device, not_negative
from agentprm_core.errors import EXPECTED, DataError
from agentprm_core.evaluate import outcomes_table, summary
from agentprm_core.policy.models import load_checkpoint, playing_dtype, require_world, trained_in
from agentprm_core.policy.server import SPEECH, Endpoint
from agentprm_core.search.decoding_config import METHODS, SEARCHES, DecodingConfig
from agentprm_core.search.playing import PlaySettings, Search, play_games, play_served
from agentprm_core.types import Episode, Game
from agentprm_core.worlds import world_spec
from agentprm_core.worlds.published import find_games, world_of_games
from tasks.frame.quiet import quiet
from tasks.frame.servers import API_KEY

Playing = Callable[[list[Game], Search, int], list[Episode]]
"""Every game once, in this way, from this seed."""
STANDALONE = METHODS[:-1]
"""Those that need nothing but checkpoints: the world model of ``lookahead`` is trained in the stage."""
_UNBOUNDED_MB = 1 << 20
"""Here ``--slots`` alone says how many episodes are played at once."""


def measured(arguments: argparse.Namespace) -> dict:
    """One checkpoint on one split, as the command line says. Returns the figures."""
    start = time.perf_counter()
    quiet()
    settle_world(arguments)
    player, search, play = (_served if arguments.server else _here)(arguments)
    games = find_games(arguments.world, arguments.games, arguments.split, arguments.limit)
    episodes = play(games, search, arguments.seed)
    constrained = search.settings.constrained
    label = world_spec(arguments.world).label
    names = {"iteration": 0, "method": "", "policy": player, "seed": arguments.seed, "constrained": constrained}
    outcomes = outcomes_table(episodes, games, split=arguments.split, decoding=search.name, label=label, **names)
    (row,) = summary(outcomes)
    told = {name: value for name, value in row.items() if name not in ("iteration", "method", "score")}
    seconds = time.perf_counter() - start
    return {**told, "max_turns": search.settings.max_turns, "policy": player, "seconds": seconds}


def _here(arguments: argparse.Namespace) -> tuple[str, Search, Playing]:
    """The checkpoint's digest, how it is to play, and what plays so."""
    how = {"device": arguments.device, "dtype": playing_dtype(arguments.precision)}
    spec = world_spec(arguments.world)
    policy = load_checkpoint(arguments.policy, plays=True, prompt=spec.prompt, **how)
    prm = load_checkpoint(arguments.prm, plays=True, kind="prm", **how) if arguments.prm else None
    for source, checkpoint in ((arguments.policy, policy), (arguments.prm, prm)):
        if checkpoint is not None:
            require_world(checkpoint, source, spec.name)
    sizes = {
        "best_of_n": {"n": arguments.n},
        "best_trajectory": {"n": arguments.n},
        "beam": {"width": arguments.width, "samples": arguments.samples, "path": arguments.path_prior},
    }
    try:
        way = DecodingConfig(arguments.method, **sizes.get(arguments.method, {}))
    except ValueError as error:
        raise DataError(f"--method: {error}") from None
    search = search_from(arguments, policy.model.config.max_position_embeddings, way)
    return policy.digest, search, partial(play_games, policy, prm)


def _served(arguments: argparse.Namespace) -> tuple[str, Search, Playing]:
    """The same of a policy behind a server, by the name it has there. Nobody constrains what it says."""
    first, *others = arguments.server
    who = {"prompt": world_spec(arguments.world).prompt, "api_key": os.environ.get(API_KEY), "also": tuple(others)}
    there = Endpoint(first, arguments.model, arguments.speech, **who)
    search = search_from(arguments, arguments.context, DecodingConfig(arguments.method))
    free = replace(search, settings=replace(search.settings, constrained=False))
    return there.model, free, partial(play_served, there)


def settle_world(arguments: argparse.Namespace) -> None:
    """Fill in what the command line leaves open: the world of the games, else the policy's; and that world's turns."""
    of_games = arguments.world or world_of_games(arguments.games, arguments.split)
    arguments.world = of_games or trained_in(arguments.policy) or "alfworld"
    if arguments.max_turns is None:
        arguments.max_turns = world_spec(arguments.world).max_turns


def search_from(arguments: argparse.Namespace, context: int, way: DecodingConfig) -> Search:
    """The way of playing that :func:`playing_arguments` say; ``context`` is the model's."""
    settings = PlaySettings(
        world=arguments.world,
        max_turns=arguments.max_turns,
        context=context if arguments.context is None else arguments.context,
        max_action_tokens=arguments.max_action_tokens,
        constrained=not arguments.free,
        slots=arguments.slots,
        cache_mb=_UNBOUNDED_MB,
    )
    return Search(way, settings, arguments.temperature, arguments.prior)


def playing_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of every measurement outside a campaign: which games are played, and how."""
    parser.add_argument("--games", type=Path, required=True, help="a folder of published games, or of tables")
    parser.add_argument("--split", required=True, help="valid_seen, unseen …")
    parser.add_argument("--world", help="a name, or package.module:SPEC (default: the games', else the policy's)")
    parser.add_argument("--temperature", type=above_zero, default=1.0, help="of samples (default %(default)s)")
    parser.add_argument(
        "--prior",
        type=not_negative,
        default=0.1,
        metavar="TAU",
        help="of searches: weight of log π̂ beside the score; 0 is the papers' Best-of-N (default %(default)s)",
    )
    parser.add_argument("--free", action="store_true", help="decode freely, not among the admissible commands")
    parser.add_argument("--max-turns", type=count, help="actions an episode (default: the world's)")
    parser.add_argument("--max-action-tokens", type=at_least(2), default=16, help="(default %(default)s)")
    parser.add_argument("--context", type=count, help="tokens an episode may have (default: the model's)")
    parser.add_argument("--slots", type=count, default=128, help="episodes at once (default %(default)s)")
    parser.add_argument("--limit", type=count, help="only the first so many games")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", type=device, default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32", help="of play")


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=prog, description="Any checkpoint on any games.")
    playing_arguments(parser)
    who = parser.add_mutually_exclusive_group(required=True)
    who.add_argument("--policy", type=Path, help="checkpoint folder, or shipped:NAME")
    who.add_argument(
        "--server",
        metavar="URL",
        action="append",
        help=f"up to and with the version; a key that it wants is in {API_KEY}; again: servers that share the games",
    )
    parser.add_argument("--model", help="of --server: the policy's name there")
    parser.add_argument("--speech", choices=tuple(SPEECH), help="of --server: text if trained here, chat if published")
    parser.add_argument("--method", choices=STANDALONE, default="greedy")
    parser.add_argument("--prm", type=Path, help="the PRM that chooses: checkpoint folder, or shipped:NAME")
    parser.add_argument(
        "--n", type=at_least(2), default=4, help="of best_of_n and best_trajectory (default %(default)s)"
    )
    parser.add_argument("--width", type=count, default=4, help="nodes that beam keeps (default %(default)s)")
    parser.add_argument("--samples", type=count, default=4, help="that beam draws a node (default %(default)s)")
    parser.add_argument(
        "--path-prior", action="store_true", help="of beam: log π̂ of all a path's actions, not the last's"
    )
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object")
    return parser


def served_needs(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """End with a line where a server is named without what it needs beside."""
    missing = [f"--{name}" for name in ("model", "speech", "context") if getattr(arguments, name) is None]
    if missing:
        parser.error(f"--server needs {', '.join(missing)}")


def _checked(parser: argparse.ArgumentParser) -> argparse.Namespace:
    arguments = parser.parse_args()
    if arguments.server:
        served_needs(parser, arguments)
        if arguments.method in SEARCHES:
            parser.error(f"--server plays greedy and sample, not {arguments.method}")
    elif arguments.method in SEARCHES and arguments.prm is None:
        parser.error(f"--method {arguments.method} needs --prm, the PRM that chooses")
    if arguments.method == "beam" and arguments.width > arguments.slots:
        parser.error(f"--width {arguments.width}: a beam needs as many --slots, not {arguments.slots}")
    return arguments


def main(prog: str = "python -m tasks.evaluate") -> None:
    """Measure and print."""
    arguments = _checked(_parser(prog))
    try:
        figures = measured(arguments)
    except EXPECTED as error:
        sys.exit(f"evaluate: {error}")
    if arguments.json:
        print(json.dumps(figures))
        return
    low, high = figures["ci_low"], figures["ci_high"]
    print(
        f"{figures['decoding']} on {figures['games']} games of {arguments.split}: success {figures['success']:.1%} "
        f"[{low:.1%}, {high:.1%}], {figures['mean_actions']:.1f} actions, {figures['seconds']:.0f} s"
    )
