"""Stage ``evaluate``: the same held-out games for every policy, in every way of decoding that params.yaml lists.

What it has measured is kept in scratch: a killed run measures only what is missing.

Stand-alone it measures any checkpoint on any games, without params.yaml, and prints one JSON object last:

    python -m tasks.evaluate --policy data/checkpoints/policy/3 --games DIR --split valid_seen --method greedy --json
    python -m tasks.evaluate --server http://localhost:8000/v1 --model agentprm-1 --speech chat --context 8192 \
        --max-action-tokens 64 --games DIR --split valid_seen     # behind vLLM, SGLang, transformers serve

``--games`` is a tree that alfworld-download left, or a folder of tables as the stage ``games`` writes them.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa

from agentprm_core.datasets import games_from_table, read_table, write_table
from agentprm_core.errors import DataError
from agentprm_core.evaluate import OUTCOMES, outcomes_table, summary
from agentprm_core.policy.models import Checkpoint
from agentprm_core.policy.requests import ServerError
from agentprm_core.policy.server import SPEECH, Endpoint
from agentprm_core.types import GAMES, Episode, Game
from agentprm_core.worlds import world_spec
from tasks.demos import choose
from tasks.frame import layout
from tasks.frame.compute import load_player, quiet, slots, use
from tasks.frame.kept import kept
from tasks.frame.stage import EXPECTED, Stage, run_stage, write_json
from tasks.playing import SEARCHES, STANDALONE, DecodingConfig, outcomes_digest, play_games, play_served, scores
from tasks.world import world_model

Playing = Callable[[list[Game], DecodingConfig, int], list[Episode]]
"""Every game once, in this way, from this seed."""
API_KEY = "OPENAI_API_KEY"
"""The environment's variable with a server's key: a flag would show it to whoever lists processes."""
_CACHES = {"best_of_n": 2, "beam": 2, "lookahead": 4}
"""Key-value caches that a way of playing keeps beside each other: the policy's, the PRM's, the imagined turns'."""


def work(stage: Stage) -> None:
    """Measure a policy on held-out games."""
    use(stage.params.compute)
    section, compute = stage.params.evaluate, stage.params.compute
    source, chooser = layout.policy(stage.iteration), layout.prm(stage.params.policies[str(stage.iteration)].prm)
    stage.read(source, chooser, layout.games("seen"), layout.games("unseen"))
    policy, prm = load_player(source, compute), load_player(chooser, compute, "prm")
    ways = [_way(stage, policy, method) for method in section.decoding]
    world, of_world = world_model(stage) if "lookahead" in section.decoding else (None, {})
    tables = [
        _outcomes(stage, split, games, way, policy, prm, world if way.method == "lookahead" else None)
        for split, games in _splits(stage).items()
        for way in ways
        if games
    ]
    outcomes = pa.concat_tables(tables)
    write_table(outcomes, layout.outcomes(stage.iteration))
    figures = by_split(outcomes)
    write_json(_headline(figures), layout.headline(stage.iteration))
    stage.report({**figures, "world_model": of_world} if of_world else figures)
    stage.wrote(layout.outcomes(stage.iteration))


def by_split(outcomes: pa.Table) -> dict:
    """{split: {decoding: figures}}."""
    figures: dict[str, dict] = {}
    for row in summary(outcomes):
        measured = {name: row[name] for name in row if name not in ("iteration", "method", "split", "decoding")}
        figures.setdefault(row["split"], {})[row["decoding"]] = measured
    return figures


def _headline(figures: dict) -> dict:
    kept = ("success", "ci_low", "ci_high", "mean_actions")
    return {
        split: {decoding: {name: row[name] for name in kept} for decoding, row in ways.items()}
        for split, ways in figures.items()
    }


def _splits(stage: Stage) -> dict[str, list[Game]]:
    """The games of each split, the same for every policy."""
    section = stage.params.evaluate
    tables = {split: games_from_table(read_table(layout.games(split), GAMES)) for split in ("seen", "unseen")}
    if section.published_root is not None:
        tables[section.published_split] = find_games(
            stage.params.env.world, Path(section.published_root), section.published_split
        )
    return {split: choose(games, min(section.games, len(games)), stage.params.seed) for split, games in tables.items()}


def _way(stage: Stage, policy: Checkpoint, method: str) -> DecodingConfig:
    section, params = stage.params.evaluate, stage.params
    caches = _CACHES.get(method, 1)
    context = min(params.model.context, policy.model.config.max_position_embeddings)
    width = section.beam.width
    seats = slots(
        stage, policy, section.slots, context, caches, ("evaluate.beam.width", width if method == "beam" else 1)
    )
    return DecodingConfig(
        method=method,
        temperature=section.temperature,
        constrained=section.constrained,
        n=section.n,
        width=width,
        samples=section.beam.samples,
        world=params.env.world,
        max_turns=params.env.max_turns,
        max_action_tokens=params.model.max_action_tokens,
        slots=seats,
        context=context,
        depth=section.lookahead.depth,
        gamma=params.label.gamma,
        prior=section.prior,
    )


def _outcomes(
    stage: Stage,
    split: str,
    games: list[Game],
    way: DecodingConfig,
    policy: Checkpoint,
    prm: Checkpoint,
    world: Checkpoint | None,
) -> pa.Table:
    params = stage.params
    # tokens read are shared among the episodes in flight, so the slots decide the costs
    decides = (way.slots, params.compute.device, params.compute.threads, params.method, world and world.digest)
    digest = outcomes_digest(policy, prm, games, way, params.seed, *decides)
    path = stage.scratch / "outcomes" / f"{split}-{way.name}-{digest}.parquet"
    return kept(path, OUTCOMES, partial(_measured, stage, split, games, way, policy, prm, world))


def _measured(
    stage: Stage,
    split: str,
    games: list[Game],
    way: DecodingConfig,
    policy: Checkpoint,
    prm: Checkpoint,
    world: Checkpoint | None,
) -> pa.Table:
    with stage.clock.lap(f"{split}/{way.name}"):
        episodes = play_games(policy, prm, games, way, stage.params.seed, world)
        if way.method == "lookahead":
            print(f"{stage.name}: {split}: {episodes[0].extra['saved']:.0%} of all steps were imagined", flush=True)
        return outcomes_table(
            episodes,
            games,
            iteration=stage.iteration,
            method=stage.params.method,
            split=split,
            decoding=way.name,
            constrained=way.constrained,
            seed=stage.params.seed,
            policy=policy.digest,
            scores=scores(prm, episodes),
        )


def find_games(world: str, root: Path, split: str, limit: int | None = None) -> list[Game]:
    """The games of ``split``: of a table ``root/split.parquet`` where there is one, else of the published data."""
    table = root / f"{split}.parquet"
    if table.exists():
        return games_from_table(read_table(table, GAMES))[:limit]
    spec = world_spec(world)
    if spec.load is None:
        raise DataError(f"{table}: no such table, and {spec.name} has no published games to read instead")
    return spec.load(root, split, limit)


def standalone(arguments: argparse.Namespace) -> dict:
    """One checkpoint on one split, as the command line says. Returns the figures."""
    start = time.perf_counter()
    quiet()
    player, way, play = (_served if arguments.server else _here)(arguments)
    games = find_games(arguments.world, arguments.games, arguments.split, arguments.limit)
    episodes = play(games, way, arguments.seed)
    names = {"iteration": 0, "method": "", "policy": player, "seed": arguments.seed}
    outcomes = outcomes_table(
        episodes, games, split=arguments.split, decoding=way.name, constrained=way.constrained, **names
    )
    (row,) = summary(outcomes)
    kept = {name: value for name, value in row.items() if name not in ("iteration", "method", "score")}
    return {**kept, "max_turns": way.max_turns, "policy": player, "seconds": time.perf_counter() - start}


def _here(arguments: argparse.Namespace) -> tuple[str, DecodingConfig, Playing]:
    """The checkpoint's digest, how it is to play, and what plays so."""
    policy = load_player(arguments.policy, arguments)
    prm = load_player(arguments.prm, arguments, "prm") if arguments.prm else None
    how = {name: getattr(arguments, name) for name in ("method", "n", "width", "samples")}
    way = way_from(arguments, policy.model.config.max_position_embeddings, **how)
    return policy.digest, way, partial(play_games, policy, prm)


def _served(arguments: argparse.Namespace) -> tuple[str, DecodingConfig, Playing]:
    """The same of a policy behind a server, by the name it has there. Nobody constrains what it says."""
    there = Endpoint(arguments.server, arguments.model, arguments.speech, api_key=os.environ.get(API_KEY))
    way = way_from(arguments, arguments.context, method=arguments.method, n=1, width=1, samples=1)
    return there.model, replace(way, constrained=False), partial(play_served, there)


def _arguments(parser: argparse.ArgumentParser) -> None:
    playing_arguments(parser)
    who = parser.add_mutually_exclusive_group(required=True)
    who.add_argument("--policy", type=Path, help="checkpoint folder")
    who.add_argument("--server", metavar="URL", help=f"up to and with the version; a key that it wants is in {API_KEY}")
    parser.add_argument("--model", help="of --server: the policy's name there")
    parser.add_argument("--speech", choices=tuple(SPEECH), help="of --server: text if trained here, chat if published")
    parser.add_argument("--method", choices=STANDALONE, default="greedy")
    parser.add_argument("--prm", type=Path, help="checkpoint folder of the PRM that chooses")
    parser.add_argument("--n", type=int, default=4, help="of best_of_n and best_trajectory (default %(default)s)")
    parser.add_argument("--width", type=int, default=4, help="nodes that beam keeps (default %(default)s)")
    parser.add_argument("--samples", type=int, default=4, help="that beam draws a node (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object")


def playing_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of every measurement outside a campaign: which games are played, and how."""
    parser.add_argument("--games", type=Path, required=True, help="alfworld-download's folder, or one of tables")
    parser.add_argument("--split", required=True, help="valid_seen, unseen …")
    parser.add_argument("--temperature", type=float, default=1.0, help="of samples (default %(default)s)")
    parser.add_argument(
        "--prior",
        type=_prior,
        default=0.1,
        metavar="TAU",
        help="of searches: weight of log π̂ beside the score; 0 is the papers' Best-of-N (default %(default)s)",
    )
    parser.add_argument("--free", action="store_true", help="decode freely, not among the admissible commands")
    parser.add_argument("--max-turns", type=int, default=30, help="actions an episode (default %(default)s)")
    parser.add_argument("--max-action-tokens", type=int, default=16, help="(default %(default)s)")
    parser.add_argument("--context", type=int, help="tokens an episode may have (default: the model's)")
    parser.add_argument("--slots", type=int, default=128, help="episodes at once (default %(default)s)")
    parser.add_argument("--limit", type=int, help="only the first so many games")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--world", default="alfworld", help="a name, or package.module:SPEC (default %(default)s)")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32", help="of play on a GPU")


def way_from(arguments: argparse.Namespace, context: int, **how: object) -> DecodingConfig:
    """The way of playing that :func:`playing_arguments` and ``how`` say together; ``context`` is the model's."""
    return DecodingConfig(
        temperature=arguments.temperature,
        constrained=not arguments.free,
        world=arguments.world,
        max_turns=arguments.max_turns,
        max_action_tokens=arguments.max_action_tokens,
        slots=arguments.slots,
        context=context if arguments.context is None else arguments.context,
        prior=arguments.prior,
        **how,
    )


def _prior(value: str) -> float:
    try:
        prior = float(value)
    except ValueError:
        prior = math.nan
    if not 0 <= prior < math.inf:
        raise argparse.ArgumentTypeError(f"{value!r} is not a number that is at least 0")
    return prior


def main() -> None:
    """The stage with ``--iteration``, stand-alone without."""
    if any(word.startswith("--iteration") for word in sys.argv[1:]):
        return run_stage("evaluate", work, iterated=True)
    parser = argparse.ArgumentParser(prog="python -m tasks.evaluate", description=__doc__.split("\n")[0])
    _arguments(parser)
    arguments = parser.parse_args()
    if arguments.server:
        missing = [f"--{name}" for name in ("model", "speech", "context") if getattr(arguments, name) is None]
        if missing:
            parser.error(f"--server needs {', '.join(missing)}")
        if arguments.method in SEARCHES:
            parser.error(f"--server plays greedy and sample, not {arguments.method}")
    elif arguments.method in SEARCHES and arguments.prm is None:
        parser.error(f"--method {arguments.method} needs --prm, the PRM that chooses")
    try:
        figures = standalone(arguments)
    except (*EXPECTED, ServerError) as error:
        sys.exit(f"evaluate: {error}")
    if arguments.json:
        print(json.dumps(figures))
    else:
        low, high = figures["ci_low"], figures["ci_high"]
        print(
            f"{figures['decoding']} on {figures['games']} games of {arguments.split}: success {figures['success']:.1%} "
            f"[{low:.1%}, {high:.1%}], {figures['mean_actions']:.1f} actions, {figures['seconds']:.0f} s"
        )
    return None


if __name__ == "__main__":
    main()
