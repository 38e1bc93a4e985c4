"""The page that ``agentprm show`` writes: the game, who plays it, and what was recorded of it."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from agentprm_core.datasets import games_from_table
from agentprm_core.errors import DataError
from agentprm_core.policy.models import Checkpoint, load_checkpoint, measured_where, playing_dtype, require_world
from agentprm_core.policy.shipped import PREFIX, is_shipped
from agentprm_core.search.playing import PlaySettings, Search
from agentprm_core.types import GAMES, Game
from agentprm_core.worlds import world_of, world_spec
from agentprm_core.worlds.published import find_games, named_game, named_id
from tasks.commands.generated import watched
from tasks.frame import layout
from tasks.frame.layout import DATA, SPLITS
from tasks.frame.quiet import quiet
from tasks.report.looking import branches_of, ending, labels_of, look, recorded_episode, said
from tasks.report.shown import Shown, episode_page, told_apart

_MB = 2048


def shown_page(arguments: argparse.Namespace) -> str:
    """The page that the command line asks for. Raises what :data:`agentprm_core.errors.EXPECTED` has."""
    quiet()
    data = arguments.campaign / DATA if arguments.campaign else None
    played = _played_in(data, arguments.iteration) if data else {}
    game = _game(arguments, played)
    world = arguments.world or world_of(game.world, _trained(arguments))
    named = {kind: [_named(given, kind) for given in getattr(arguments, kind)] for kind in ("policy", "prm")}
    iteration = max((number for number, ids in played.items() if game.id in ids), default=None)
    if data and not named["prm"] and (last := data / "checkpoints" / "prm" / str(iteration)).exists():
        named["prm"] = [(f"PRM {iteration}", last)]
    prms = [_loaded(arguments, path, world, "prm") for _, path in named["prm"]]
    shown = [_played(arguments, game, world, name, path, prms) for name, path in named["policy"]]
    if data and iteration is not None and len(shown) < 2:
        before = data / "checkpoints" / "policy" / str(iteration - 1)
        policy = _loaded(arguments, before, world, "policy") if before.exists() else None
        shown.insert(0, _rollout(data, iteration, game, world, policy, prms))
    names = list(told_apart([one.name for one in shown]))
    shown = [replace(one, name=name) for one, name in zip(shown, names)]
    prm_names = list(told_apart([name for name, _ in named["prm"]]))
    playing = names[len(names) - len(named["policy"]) :]
    sources = [
        (name, str(path))
        for kind, own in (("policy", playing), ("prm", prm_names))
        for name, (_, path) in zip(own, named[kind])
    ]
    return episode_page(game, shown, prm_names, sources=sources)


def _played(
    arguments: argparse.Namespace, game: Game, world: str, name: str, path: Path, prms: Sequence[Checkpoint]
) -> Shown:
    policy, way = _loaded(arguments, path, world, "policy"), arguments.search
    context = policy.model.config.max_position_embeddings
    settings = PlaySettings(
        world=world,
        max_turns=arguments.max_turns or world_spec(world).max_turns,
        context=min(context, arguments.context or context),
        max_action_tokens=arguments.max_action_tokens,
        constrained=not arguments.free,
        slots=max(way.width, way.n, 1),
        cache_mb=_MB,
    )
    search = Search(way, settings, arguments.temperature, arguments.prior)
    chooser = prms[0] if way.is_search else None
    found = look(policy, chooser, prms, [game], search, arguments.seed, name=f"{name}, {search.name}")
    if game.id not in found:
        raise DataError(f"{game.id}: {name} did not act: its context of {settings.context} tokens has no room")
    return found[game.id]


def _rollout(
    data: Path, iteration: int, game: Game, world: str, policy: Checkpoint | None, prms: Sequence[Checkpoint]
) -> Shown:
    """What the campaign recorded: a rollout of ``policy``, the one before the iteration."""
    episode = recorded_episode(data, iteration, game.id)
    return Shown(
        f"rollout of iteration {iteration}, by policy {iteration - 1}",
        episode,
        said(policy, prms, episode, constrained=True, scored=None),
        ending=ending(world, game, episode),
        labels=labels_of(data, iteration, episode),
        branches=branches_of(data, iteration, episode),
    )


def _game(arguments: argparse.Namespace, played: Mapping[int, Sequence[str]]) -> Game:
    """The one that was asked for, of a campaign one of ``played``. Raises DataError, with the nearest ids, where there
    is none of this id."""
    root = arguments.games
    if root is None:
        root = (arguments.campaign or Path()) / DATA / "games"
        if not root.is_dir():
            if arguments.campaign or not arguments.policy:
                raise DataError(f"{root}: no games here; give --games, a folder or a table, or --campaign")
            return _generated(arguments)
    if not root.exists():
        raise DataError(f"{root}: no such folder or file")
    tables = [root] if root.is_file() else [root / f"{split}.parquet" for split in _splits(arguments.split)]
    tables = [table for table in tables if table.exists()]
    if not tables and not arguments.split:
        raise DataError(f"{root}: no tables of games in it; for published games give --split too")
    asked = arguments.game or "1"
    if arguments.campaign:
        there = list(dict.fromkeys(chain(*played.values())))
        which = f"iteration{'s' if len(played) > 1 else ''} {', '.join(map(str, played))}"
        asked = named_id(there, asked, f"the rollouts of {arguments.campaign} ({which})")
    where = f"{root}{f', {arguments.split}' if arguments.split else ''}"
    if not tables:
        return named_game(find_games(arguments.world or "alfworld", root, arguments.split), asked, where)
    wanted = named_id([one for table in tables for one in _ids(table)], asked, where)
    return next(game for table in tables for game in _of_id(table, wanted))


def _generated(arguments: argparse.Namespace) -> Game:
    """One of those that ``agentprm play`` shows under the same seed."""
    trained, split = _trained(arguments), arguments.split or "unseen"
    spec = world_spec(arguments.world or world_of(trained or "alfworld", trained))
    games, first = watched(spec, arguments.seed, split, arguments.game)
    return games[first]


def _trained(arguments: argparse.Namespace) -> str:
    """The world of the first policy, else of the campaign's."""
    sources = [_named(value, "policy")[1] for value in arguments.policy]
    sources += [arguments.campaign / layout.policy(0)] if arguments.campaign else []
    return next((world for source in sources if (world := measured_where(source))), "")


def _splits(split: str | None) -> Sequence[str]:
    return SPLITS if split is None else (split,)


def _of_id(table: Path, wanted: str) -> list[Game]:
    """The games of a table with this id, without reading all others."""
    rows, first = [number for number, game in enumerate(_ids(table)) if game == wanted], 0
    found: list[Game] = []
    with pq.ParquetFile(table) as file:  # not by a filter: pyarrow imports pandas to make one
        for group in range(file.num_row_groups):
            end = first + file.metadata.row_group(group).num_rows
            if own := [row - first for row in rows if first <= row < end]:
                read = file.read_row_group(group, GAMES.names).select(GAMES.names).cast(GAMES)
                found += [game for row in own for game in games_from_table(read.slice(row, 1))]
            first = end
    return found


def _ids(table: Path) -> list[str]:
    """Of a table of games. Raises DataError for a file that is none."""
    try:
        with pq.ParquetFile(table) as file:
            if not (missing := {*GAMES.names} - {*file.schema_arrow.names}):
                return file.read(["game_id"])["game_id"].to_pylist()
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{table}: cannot be read as a table of games") from error
    raise DataError(f"{table}: lacks the columns {', '.join(sorted(missing))}")


def _played_in(data: Path, asked: int | None) -> dict[int, list[str]]:
    """{iteration: the ids of the games that its rollouts played, in their order}; of the iteration ``asked`` for alone.
    Raises DataError where there are no such rollouts."""
    tables = {int(path.parent.name): path for path in (data / "rollouts").glob("[0-9]*/episodes.parquet")}
    done = sorted(tables)
    if not done:
        raise DataError(f"{data / 'rollouts'}: no rollouts yet; run the campaign, or leave out --campaign")
    if asked is not None and asked not in tables:
        raise DataError(f"--iteration {asked}: no rollouts of it in {data}; there are {', '.join(map(str, done))}")
    chosen = done if asked is None else [asked]
    ids = {number: pq.read_table(tables[number], columns=["game_id"])["game_id"] for number in chosen}
    return {number: list(dict.fromkeys(of.to_pylist())) for number, of in ids.items()}


def _loaded(arguments: argparse.Namespace, path: Path, world: str, kind: str) -> Checkpoint:
    """A checkpoint that may play in this world. Raises DataError for one that was trained in another."""
    how = {"device": arguments.device, "dtype": playing_dtype(arguments.precision)}
    loaded = load_checkpoint(path, plays=True, kind=kind, prompt=world_spec(world).prompt, **how)
    require_world(loaded, path, world)
    return loaded


def _named(value: str, kind: str) -> tuple[str, Path]:
    """``NAME=FOLDER``, a folder, which is named after its last two parts, or ``shipped:NAME``. A PRM is called one."""
    name, equals, path = value.partition("=")
    if equals:
        return name, Path(path)
    if is_shipped(value):
        name = value.removeprefix(PREFIX)  # short: it labels bars
    else:
        name = " ".join(Path(value).resolve().parts[-2:]).replace("prm ", "PRM ")
    return (name if kind == "policy" or "PRM" in name else f"PRM {name}"), Path(value)
