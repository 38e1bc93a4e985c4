"""Which of the expert's decisions a policy lacks: the expert plays the first actions of a game, the policy the others.

    python -m benchmarks.handover --policy data/checkpoints/policy/0 --games data/games/seen.parquet --split seen --json

Success by how many actions the expert does first (``--first 0,1,2``), on the same games, played greedily. Where it
jumps from k to k + 1, it is the expert's action k + 1 that the policy lacks. What is handed over is what the expert did
in an episode of its own; where that was shorter, it is all of it.

The last line is one JSON object: ``rows``, one a number of actions: ``first``, ``games``, ``success`` with its 95 %
interval (``ci_low``, ``ci_high``), ``mean_reward``, and ``v_none``: the paired difference to the first row, with
McNemar's exact p.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import torch

from agentprm_core.arguments import OneLineParser, any_seed, at_least, count, listed
from agentprm_core.evaluate import paired_test, wilson
from agentprm_core.policy.models import Checkpoint, load_checkpoint, measured_where
from agentprm_core.rollout import play, starts
from agentprm_core.search.playing import PlaySettings
from agentprm_core.types import Episode, Game
from agentprm_core.worlds import world_spec
from agentprm_core.worlds.demonstrations import demonstrate
from benchmarks.answering import add_json, answer
from benchmarks.placebo import games_of


def handed_over(
    policy: Checkpoint, games: Sequence[Game], settings: PlaySettings, firsts: Sequence[int], seed: int
) -> dict[int, list[Episode]]:
    """{actions of the expert's: the episodes, sorted by game}. Raises DataError for a world without an expert."""
    engine, played = world_spec(settings.world).make(), {}
    shown = {
        game.id: demonstrate(
            engine, game, world_name=settings.world, max_turns=settings.max_turns, seed=seed + number, knowledge=0.0
        )
        for number, game in enumerate(games)
    }
    for first in firsts:
        begun = [
            replace(start, actions=tuple(turn.action for turn in shown[start.game.id].turns[:first]))
            for start in starts(games, 1, seed)
        ]
        episodes = play(settings.sampler(policy, 0.0), begun, **settings.worlds)
        played[first] = sorted(episodes, key=lambda episode: episode.game_id)
    return played


def rows_of(played: dict[int, list[Episode]]) -> list[dict]:
    """A row for each number of actions; the first of them is what the others are held against."""
    won = {first: {episode.game_id: episode.won for episode in episodes} for first, episodes in played.items()}
    none = next(iter(won.values()))
    rows = []
    for first, episodes in played.items():
        wins, games = sum(won[first].values()), len(episodes)
        low, high = wilson(wins, games)
        row = {"first": first, "games": games, "success": wins / games, "ci_low": low, "ci_high": high}
        row |= {"mean_reward": sum(episode.reward for episode in episodes) / games}
        rows.append(row | {"v_none": None if won[first] is none else asdict(paired_test(none, won[first]))})
    return rows


def _told(row: dict) -> str:
    low, high = 100 * row["ci_low"], 100 * row["ci_high"]
    said = f"the expert's first {row['first']}: {row['success']:.1%} [{low:.1f}, {high:.1f}] of {row['games']} games"
    return f"{said}, mean reward {row['mean_reward']:.2f}"


def measured(args: argparse.Namespace) -> dict:
    """The JSON object of what the command line asks for."""
    policy, world = load_checkpoint(args.policy), measured_where(args.policy) or "alfworld"
    settings = PlaySettings(
        world=world,
        max_turns=args.max_turns or world_spec(world).max_turns,
        context=policy.model.config.max_position_embeddings,
        max_action_tokens=args.max_action_tokens,
        constrained=True,
        slots=64,
        cache_mb=2048,
    )
    games = games_of(args.games, args.split, world, args.limit)
    rows = rows_of(handed_over(policy, games, settings, args.first, args.seed))
    return {"rows": rows, "world": world, "seed": args.seed}


def main() -> None:
    parser = OneLineParser(
        prog="python -m benchmarks.handover", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--policy", type=Path, required=True)
    parser.add_argument("--games", type=Path, required=True, help="a folder of games, or a Parquet table of them")
    parser.add_argument("--split", default="seen")
    parser.add_argument("--limit", type=count, help="only so many games, drawn so that kinds mix")
    parser.add_argument("--first", type=listed(at_least(0)), default=(0, 1, 2))
    parser.add_argument("--max-turns", type=count, help="actions an episode (default: the world's)")
    parser.add_argument("--max-action-tokens", type=at_least(2), default=32)
    parser.add_argument("--seed", type=any_seed, default=1)
    parser.add_argument("--threads", type=count, default=1)
    add_json(parser)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    answer("handover", lambda: measured(args), lambda found: "\n".join(map(_told, found["rows"])), only_json=args.json)


if __name__ == "__main__":
    main()
