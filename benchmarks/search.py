"""What search costs: step beam search N × M and Best-of-N at each turn, and how much of it is outside the models.

    python -m benchmarks.search --json
    python -m benchmarks.search --policy data/checkpoints/policy/3 --prm data/checkpoints/prm/3 --games 140 --json

Without ``--policy`` one is trained first, as in :mod:`benchmarks.rollouts`; without ``--prm`` a PRM of the policy's
size with a random head scores: the cost is the same, the choices are not. The last line printed is a JSON object:
``beam_minutes_140_games`` (scaled from the games played), ``overhead_share`` (of the beam search, outside policy and
PRM), and the tokens and steps a game cost.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from pathlib import Path

import torch

from agentprm_core.arguments import above_zero, any_seed, at_least, count, not_negative
from agentprm_core.policy.models import Checkpoint, load_checkpoint
from agentprm_core.policy.sampler import Sampler
from agentprm_core.prm.model import new_prm
from agentprm_core.rollout import play, starts
from agentprm_core.search.beam import BeamSearch
from agentprm_core.search.best_of_n import Chooser
from agentprm_core.search.scorer import PrmScorer
from agentprm_core.types import Episode
from agentprm_core.worlds.alfworld.households import generate_games
from benchmarks.rollouts import CLOCKS, Run, Stopwatch, trained_policy


def random_prm(policy: Checkpoint, seed: int, likelihood: float) -> Checkpoint:
    """A PRM of the policy's size whose scores mean nothing but for its likelihood."""
    model = new_prm(policy.model, likelihood)
    torch.manual_seed(seed)
    with torch.no_grad():
        model.score.weight.normal_(std=0.2)
    return Checkpoint(model.eval(), policy.tokenizer, policy.renderer, "")


def measured(
    policy: Checkpoint,
    prm: Checkpoint,
    args: argparse.Namespace,
    search: Callable[[Sampler, PrmScorer], Iterable[Episode]],
) -> Run:
    sampler = Sampler(
        policy,
        slots=args.slots,
        context=args.context,
        temperature=args.temperature,
        constrained=True,
        max_action_tokens=args.max_action_tokens,
    )
    scorer = PrmScorer(prm, slots=args.slots, context=args.context, max_action_tokens=args.max_action_tokens)
    clock, models = CLOCKS[args.clock], Stopwatch(CLOCKS[args.clock])
    models.put_around(sampler._talks.runner)
    models.put_around(scorer._talks.runner)
    started = clock()
    episodes = list(search(sampler, scorer))
    return Run(episodes, clock() - started, models.seconds)


def main() -> None:
    args = _arguments()
    torch.set_num_threads(args.threads)
    games = generate_games(args.games, args.seed, "unseen")
    if args.policy:
        policy = load_checkpoint(args.policy, device=args.device)
    else:
        policy = trained_policy(generate_games(args.demos, args.seed, "train"), args)
    prm = (
        load_checkpoint(args.prm, kind="prm", device=args.device)
        if args.prm
        else random_prm(policy, args.seed, args.likelihood)
    )
    begun = starts(games, 1, args.seed)
    play_settings = {"world_name": "alfworld", "max_turns": args.max_turns}
    chosen = measured(policy, prm, args, lambda s, q: play(Chooser(s, q, args.samples), begun, **play_settings))
    beam = measured(
        policy,
        prm,
        args,
        lambda s, q: BeamSearch(s, q, width=args.width, samples=args.samples).search(begun, **play_settings),
    )
    costs = [episode.extra["cost"] for episode in beam.episodes]
    mean = {name: round(sum(getattr(cost, name) for cost in costs) / len(costs)) for name in costs[0].__slots__}
    report = {
        "beam_minutes_140_games": round(beam.seconds / len(games) * 140 / 60, 2),
        "overhead_share": round(1 - beam.model_seconds / beam.seconds, 3),
        "beam": f"{args.width}x{args.samples}",
        "beam_success": round(beam.success, 3),
        "beam_tokens_a_game": mean,
        "beam_world_steps_a_game": round(sum(e.extra["world_steps"] for e in beam.episodes) / len(games)),
        "best_of_n_turns_per_s": round(chosen.rate, 1),
        "best_of_n_overhead_share": round(1 - chosen.model_seconds / chosen.seconds, 3),
        "best_of_n_success": round(chosen.success, 3),
        "games": len(games),
        "slots": args.slots,
        "threads": args.threads,
        "clock": args.clock,
        "device": args.device,
    }
    if not args.json:
        for name, value in report.items():
            print(f"{name:>26} {value}")
    print(json.dumps(report))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", type=Path, help="a checkpoint; without it one is trained")
    parser.add_argument("--prm", type=Path, help="a checkpoint; without it scores are random")
    parser.add_argument(
        "--likelihood", type=not_negative, default=0.3, help="of a PRM with random scores: critic.likelihood"
    )
    parser.add_argument("--demos", type=count, default=600, help="demonstrations to train on")
    parser.add_argument("--train-steps", type=count, default=120)
    parser.add_argument("--width", type=count, default=8)
    parser.add_argument("--samples", type=count, default=8)
    parser.add_argument("--model-width", type=count, default=128)
    parser.add_argument("--layers", type=count, default=4)
    parser.add_argument("--games", type=count, default=35, help="generated households to search")
    parser.add_argument("--temperature", type=above_zero, default=1.0)
    parser.add_argument("--max-turns", type=count, default=30)
    parser.add_argument("--max-action-tokens", type=at_least(2), default=16)
    parser.add_argument("--context", type=count, default=512)
    parser.add_argument("--slots", type=count, default=256)
    parser.add_argument("--threads", type=count, default=torch.get_num_threads())
    parser.add_argument("--clock", choices=sorted(CLOCKS), default="wall")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--seed", type=any_seed, default=0)
    parser.add_argument("--json", action="store_true", help="only the JSON line")
    return parser.parse_args()


if __name__ == "__main__":
    main()
