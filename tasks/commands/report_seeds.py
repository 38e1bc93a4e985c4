"""Campaigns of several seeds together: success of each policy by seed, and its mean over them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from agentprm_core.comparing import over_seeds
from agentprm_core.errors import DataError
from tasks.frame import layout
from tasks.frame.params import PARAMS, read_mapping
from tasks.frame.tracking import flatten


def rows_by_seed(folders: Sequence[Path]) -> dict[int, list[dict]]:
    """{seed: the table of iterations} of campaigns whose parameters are the first one's but for the seed.

    Raises:
        DataError: one is no campaign, or has no table; parameters differ, which names the first key; two have one seed.
    """
    for folder in folders:
        layout.require_campaign(folder)
    first, found = dict(flatten(read_mapping(folders[0] / PARAMS))), {}
    for folder in folders:
        own = dict(flatten(read_mapping(folder / PARAMS)))
        for key in [*first, *own]:
            if key != "seed" and _value(own, key) != _value(first, key):
                raise DataError(
                    f"{folder}: {key} is {_value(own, key)} there and {_value(first, key)} in {folders[0].resolve()}: "
                    "campaigns that are averaged differ in their seed alone"
                )
        if own["seed"] in found:
            raise DataError(f"{folder}: its seed, {own['seed']}, is that of another campaign here")
        table = folder / layout.ITERATIONS
        if not table.exists():
            raise DataError(f"{table}: no such file: the stage compare has not run there")
        found[own["seed"]] = json.loads(table.read_text())
    return found


def together(seeds: Mapping[int, Sequence[Mapping]]) -> list[dict]:
    """A row for each policy, split and way of playing that every seed has: these names, ``by_seed`` ({seed: its row}),
    and what :func:`agentprm_core.comparing.over_seeds` says of success. Raises DataError where there is none."""
    tables = {seed: {_key(row): row for row in rows} for seed, rows in seeds.items()}
    found = []
    for key in next(iter(tables.values())):
        by_seed = {seed: table[key] for seed, table in tables.items() if key in table}
        if len(by_seed) == len(tables):
            names = dict(zip(("iteration", "split", "decoding"), key))
            told = over_seeds([row["success"] for row in by_seed.values()])
            found.append({**names, "by_seed": by_seed, **told})
    if not found:
        raise DataError("these campaigns have no policy, split and way of playing in common: dvc repro compare in each")
    return found


def _key(row: Mapping) -> tuple[int, str, str]:
    return row["iteration"], row["split"], row["decoding"]


def _value(params: Mapping, key: str) -> str:
    return repr(params[key]) if key in params else "not"
