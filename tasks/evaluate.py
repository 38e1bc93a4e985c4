"""Stage ``evaluate``: the same held-out games for every policy, in every way of playing that params.yaml lists.

What it has measured is kept in scratch: a killed run measures only what is missing. Without ``--iteration`` it measures
any checkpoint on any games (:mod:`tasks.commands.standalone`)."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from agentprm_core.comparing import prm_figures
from agentprm_core.datasets import episodes_from_table, games_from_table, read_table, write_table
from agentprm_core.evaluate import OUTCOMES, by_split, headline
from agentprm_core.improve.sft import SftSettings
from agentprm_core.policy.models import Checkpoint, load_checkpoint, merged, playing_dtype
from agentprm_core.search.cells import Cell, measurer
from agentprm_core.search.imagining import imagined_world
from agentprm_core.search.playing import search_digest
from agentprm_core.shards.base import kept_portions
from agentprm_core.suites_played import outcomes_suite
from agentprm_core.types import EPISODES, GAMES, Game
from agentprm_core.worlds.published import find_games
from tasks.frame import layout
from tasks.frame.given import searches
from tasks.frame.machine import hardware, use
from tasks.frame.shards import shards
from tasks.frame.stage import Stage, run_stage, write_json


def work(stage: Stage) -> None:
    """Measure a policy on held-out games."""
    params, compute = stage.params, stage.params.compute
    use(compute)
    chooser = layout.prm(params.policies[str(stage.iteration)].prm)
    stage.read(layout.policy(stage.iteration), chooser, layout.games("seen"), layout.games("unseen"))
    how = {"device": compute.device, "dtype": playing_dtype(compute.precision)}
    policy = merged(load_checkpoint(layout.policy(stage.iteration), plays=True, **how))
    prm = load_checkpoint(chooser, plays=True, kind="prm", **how)
    ways = searches(params)
    ahead = any(search.way.method == "lookahead" for search in ways)
    world_model, of_world = _world_model(stage) if ahead else (None, {})
    splits = _splits(stage)
    cells = [Cell(split, games, search) for split, games in splits.items() for search in ways]
    outcomes = pa.concat_tables(_measured(stage, cells, policy, prm, world_model))
    stage.gate(outcomes_suite(outcomes, {split: len(of) for split, of in splits.items()}, policy=policy.digest))
    write_table(outcomes, layout.outcomes(stage.iteration))
    figures, of_prm = by_split(outcomes), prm_figures(outcomes)
    on = layout.games("unseen" if "unseen" in figures else "seen")
    write_json(headline(figures) | of_prm, layout.headline(stage.iteration))
    with stage.tracking():
        stage.tracker.log_metrics(of_prm)
    imagined = {"world_model": of_world} if of_world else {}
    stage.report(figures | of_prm | imagined, of=policy.digest, on=on)
    stage.wrote(layout.outcomes(stage.iteration))


def _splits(stage: Stage) -> Mapping[str, list[Game]]:
    """The games of each split that has any, the same for every policy."""
    also = stage.params.evaluate.also
    tables = {split: games_from_table(read_table(layout.games(split), GAMES)) for split in ("seen", "unseen")}
    if also is not None:
        tables[also.split] = find_games(stage.params.measured_in, Path(also.root), also.split)
    return {split: games for split, games in tables.items() if games}


def _measured(
    stage: Stage, cells: list[Cell], policy: Checkpoint, prm: Checkpoint, world_model: Checkpoint | None
) -> list[pa.Table]:
    params, compute = stage.params, stage.params.compute
    paths = []
    for cell in cells:
        world = world_model if cell.search.way.method == "lookahead" else None
        # tokens read are shared among the episodes in flight, so the slots decide the costs
        decides = (cell.search.slots(policy), compute.device, compute.threads, params.label, world and world.digest)
        digest = search_digest(policy, prm, cell.games, cell.search, params.seed, *decides)
        paths.append(stage.scratch / "outcomes" / f"{cell.split}-{cell.search.name}-{digest}.parquet")
    named = {"iteration": stage.iteration, "method": params.label}
    shared, portions = (policy, prm, world_model, params.seed, named), [(cell,) for cell in cells]

    def took(number: int, seconds: float) -> None:
        stage.clock.book(cells[number].name, seconds)

    return kept_portions(shards(compute), paths, OUTCOMES, measurer, shared, portions, took)


def _world_model(stage: Stage) -> tuple[Checkpoint, dict]:
    params = stage.params
    rollouts = layout.episodes(params.policies[str(stage.iteration)].prm)
    how = {"learning_rate": params.sft.learning_rate, "batch_tokens": params.sft.batch_tokens, "seed": stage.seed}
    settings = SftSettings(**hardware(params).settings(**how), epochs=1.0)
    policy = load_checkpoint(layout.policy(stage.iteration), device=params.compute.device)
    episodes = list(episodes_from_table(read_table(rollouts, EPISODES)))
    sides = {"validation_share": params.rollout.validation_share, "campaign_seed": params.seed}
    return imagined_world(policy, episodes, settings, stage.scratch / "world", **sides)


if __name__ == "__main__":
    if any(word.startswith("--iteration") for word in sys.argv[1:]):
        run_stage("evaluate", work, iterated=True, gated=True)
    else:
        from tasks.commands.standalone import main

        main()
