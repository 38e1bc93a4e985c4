"""Makes an agent that comes with the package of a finished campaign: ``shipped:NAME``.

    python -m tasks.commands.ship --campaign DIR --policy 3 --prm 3 --name households

``DIR`` is the campaign's checkout: its params.yaml, its checkpoints, and its evaluation of that policy. The weights are
cast to bfloat16, and are played in float32 on a CPU. What the cast costs is measured: the shipped agent plays the
campaign's held-out games in each way of ``--ways`` with the campaign's seed, and is compared with the campaign's own
outcomes game by game. ``card.json`` holds the figures and ``MODEL_CARD.md`` says them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import pyarrow.compute as pc
import torch

from agentprm_core.datasets import atomic_write, games_from_table, read_table
from agentprm_core.errors import DataError
from agentprm_core.evaluate import OUTCOMES, paired_test, wilson
from agentprm_core.policy import shipped
from agentprm_core.policy.models import checkpoint_digest, load_checkpoint, save_checkpoint
from agentprm_core.search.decoding_config import decoding
from agentprm_core.search.playing import Search, play_games
from agentprm_core.types import GAMES, Game
from agentprm_core.worlds import world_spec
from tasks.frame import layout
from tasks.frame.given import play_settings
from tasks.frame.machine import quiet
from tasks.frame.params import load_params
from tasks.frame.sections import Games, Params, Published
from tasks.frame.stage import EXPECTED

SPLITS = ("seen", "unseen")
PLACES = {"seen": "places of training", "unseen": "other places"}
"""Split → the column of its figures."""
LICENCES = {
    "alfworld": "games and texts: the alfworld package with AI2-THOR's floor plans, MIT, by ALFWorld's authors",
    "textcraft": "recipes and dialogue: ADaPT, MIT, by its authors",
    "webshop": "dialogue and pages: WebShop, MIT, by its authors",
    "babyai": "mazes: minigrid, Apache-2.0; dialogue: AgentGym, MIT, by their authors",
}
"""World → under which licence its games are."""


def ship(arguments: argparse.Namespace) -> dict:
    """Write the agent's folder; returns what stands in ``card.json``. Raises DataError."""
    root: Path = arguments.campaign
    params = load_params(root / "params.yaml")
    spec = world_spec(params.env.world)
    sources = {"policy": root / layout.policy(arguments.policy), "prm": root / layout.prm(arguments.prm)}
    with atomic_write(shipped.FOLDER / arguments.name) as aside:
        checkpoints = {}
        for kind, source in sources.items():
            checkpoints[kind] = _cast(source, aside / kind, kind, spec.name)
            checkpoints[kind]["iteration"] = getattr(arguments, kind)
        torch.set_num_threads(params.compute.threads)
        card = {
            "name": arguments.name,
            "world": spec.name,
            "checkpoints": checkpoints,
            "trained": _trained(params, root, arguments.command),
            "figures": measured(root, params, aside, arguments.policy, arguments.ways),
            "licence": LICENCES.get(spec.name, arguments.licence),
        }
        (aside / shipped.CARD).write_text(json.dumps(card, indent=2, sort_keys=True) + "\n")
        (aside / "MODEL_CARD.md").write_text(written(card))
    return card


def _cast(source: Path, folder: Path, kind: str, world: str) -> dict:
    """The checkpoint in bfloat16 at ``folder``; what is to be known of it."""
    of = load_checkpoint(source, kind=kind)
    if of.world not in ("", world):
        raise DataError(f"{source}: trained in the world {of.world}, and params.yaml says {world}")
    told = {"kind": kind, "instruction": of.renderer.instruction, "world": world}
    small = cast(Any, of.model).to(torch.bfloat16)  # whose type transformers' wrapper hides
    digest = save_checkpoint(small, of.tokenizer, folder, **told)
    size = (folder / "model.safetensors").stat().st_size
    return {"digest": digest, "made_of": of.digest, "parameters": of.model.num_parameters(), "bytes": size}


def measured(root: Path, params: Params, folder: Path, iteration: int, ways: Sequence[str]) -> list[dict]:
    """The shipped agent on the campaign's held-out games, each way, beside the campaign's own outcomes on them.

    Raises DataError where the campaign's evaluation is of other weights, or did not play so.
    """
    splits = {split: games_from_table(read_table(root / layout.games(split), GAMES)) for split in SPLITS}
    games = [game for own in splits.values() for game in own]
    policy, prm = load_checkpoint(folder / "policy"), load_checkpoint(folder / "prm", kind="prm")
    rows = []
    for way in map(decoding, ways):
        before = _campaigns(root, iteration, way.name, games)
        search = Search(way, play_settings(params), params.rollout.temperature, params.critic.prior)
        episodes = play_games(policy, prm, games, search, params.seed)
        won = {episode.game_id: episode.won for episode in episodes}
        row = {"way": way.name, **_success(games, won)}
        row["mean_actions"] = sum(episode.length for episode in episodes) / len(episodes)
        row["by_split"] = {split: _success(own, won) for split, own in splits.items() if own}
        rows.append({**row, "cast": asdict(paired_test(before, won))})
        print(f"{way.name}: {_told(row)} of {len(won)} games", flush=True)
    return rows


def _success(games: Sequence[Game], won: Mapping[str, bool]) -> dict:
    own = [won[game.id] for game in games]
    low, high = wilson(sum(own), len(own))
    return {"games": len(own), "success": sum(own) / len(own), "ci_low": low, "ci_high": high}


def _told(row: Mapping) -> str:
    return f"{row['success']:.1%} [{row['ci_low']:.1%}, {row['ci_high']:.1%}]"


def _campaigns(root: Path, iteration: int, way: str, games: Sequence[Game]) -> dict[str, bool]:
    """{game: whether the campaign's policy won it in this way}."""
    path = root / layout.outcomes(iteration)
    table = read_table(path, OUTCOMES)
    digest = checkpoint_digest(root / layout.policy(iteration))
    if set(table["policy"].to_pylist()) != {digest}:
        raise DataError(f"{path}: its outcomes are not those of the policy {digest}; evaluate the policy first")
    of = table.filter(pc.field("decoding") == way)
    won = dict(zip(of["game_id"].to_pylist(), of["won"].to_pylist()))
    if missing := {game.id for game in games} - won.keys():
        raise DataError(f"{path}: {len(missing)} games were not played by {way}; --ways takes {_ways(table)}")
    return {game.id: won[game.id] for game in games}


def _ways(table) -> str:
    return ", ".join(sorted(set(table["decoding"].to_pylist())))


def _games(games: Games) -> str:
    if isinstance(games.published, Published):
        return "published and generated" if games.published.generated else "published"
    return "generated" if games.published is None else "published"


def _trained(params: Params, root: Path, command: str) -> dict:
    done = subprocess.run(["git", "-C", root, "rev-parse", "HEAD"], capture_output=True, text=True)
    return {
        "command": command,
        "commit": done.stdout.strip() or "unknown",
        "seed": params.seed,
        "games": _games(params.games),
        "iterations": len(params.iterations),
        "demonstrations": params.demos.games,
        "rollouts": params.rollout.games * params.rollout.episodes_per_game,
        "critic": params.critic.name,
        "method": params.method.name,
    }


def written(card: Mapping) -> str:
    """``MODEL_CARD.md`` of a card."""
    trained, of = card["trained"], card["checkpoints"]
    head = (
        "way of playing",
        "games",
        "success (95 % interval)",
        *(PLACES[split] for split in card["figures"][0].get("by_split", {})),
        "actions",
        "in float32",
        "won or lost by the cast (p)",
    )
    lines = [
        f"# shipped:{card['name']}",
        "",
        f"A policy of the world `{card['world']}` and the PRM that judges it. Trained here from scratch, for "
        "demonstration and as a yardstick. It knows the words of its world and nothing else.",
        "",
        f"- **Trained by** `{trained['command']}` at commit `{trained['commit']}`, seed {trained['seed']}: "
        f"{trained['demonstrations']:,} demonstrations, then {trained['iterations']} iterations of "
        f"{trained['rollouts']:,} rollouts, critic `{trained['critic']}`, method `{trained['method']}`, on "
        f"{trained['games']} games.",
        *(
            f"- **{name}**: {part['parameters']:,} parameters of iteration {part['iteration']} in bfloat16, "
            f"{part['bytes'] / 1e6:.1f} MB, digest `{part['digest']}`, cast from `{part['made_of']}`."
            for name, part in sorted(of.items())
        ),
        f"- **Licence**: weights MIT, as this repository; {card['licence']}.",
        "",
        "Figures on held-out games, on places of the training games and on others. The weights are bfloat16 on disk "
        "and are played in float32. The campaign's own weights in float32 played the same games:",
        "",
        f"| {' | '.join(head)} |",
        f"|{'---|' * len(head)}",
        *(f"| {' | '.join(_row(row))} |" for row in card["figures"]),
        "",
        "Make it again from a finished campaign:",
        "",
        f"    python -m tasks.commands.ship --campaign DIR --policy {of['policy']['iteration']} "
        f"--prm {of['prm']['iteration']} --name {card['name']}",
        "",
    ]
    return "\n".join(lines)


def _row(row: Mapping) -> list[str]:
    cast = row["cast"]
    return [
        f"`{row['way']}`",
        str(row["games"]),
        _told(row),
        *(f"{_told(own)} of {own['games']}" for own in row.get("by_split", {}).values()),
        f"{row['mean_actions']:.1f}",
        f"{row['success'] - cast['difference']:.1%}",
        f"+{cast['gained']} −{cast['lost']} ({cast['p_value']:.2g})",
    ]


def main(prog: str = "python -m tasks.commands.ship") -> None:
    parser = argparse.ArgumentParser(prog=prog, description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--campaign", type=Path, required=True, help="checkout of a finished campaign")
    parser.add_argument("--policy", type=int, required=True, help="which π")
    parser.add_argument("--prm", type=int, required=True, help="which PRM")
    parser.add_argument("--name", required=True, help="it will be shipped:NAME")
    parser.add_argument("--ways", nargs="+", default=["greedy", "best_of_16", "beam_4x4"], help="that are measured")
    parser.add_argument("--command", default="make run", help="what the campaign was run by (default %(default)s)")
    parser.add_argument("--licence", default="games: see the world's package", help="of a world of your own")
    arguments = parser.parse_args()
    quiet()
    try:
        ship(arguments)
    except (*EXPECTED, ValueError) as error:
        sys.exit(f"ship: {error}")
    print(f"shipped:{arguments.name} lies in {shipped.FOLDER / arguments.name}")


if __name__ == "__main__":
    main()
