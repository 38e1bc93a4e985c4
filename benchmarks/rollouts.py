"""Rollouts beside the reference's loop: the same policy, the same games, the same turn limit, one run.

The rival does what the published code of paper A does: a lock-step batch in which every turn re-reads the whole history
of every episode through ``model.generate``, finished ones included, until the slowest has ended. It is spared what is
not the method's: it plays in the fast engine too, and its prompts are ours.

    python -m benchmarks.rollouts --json
    python -m benchmarks.rollouts --growth --plot docs/rollouts.png --json   # 64 to 4,096 episodes at once
    python -m benchmarks.rollouts --policy data/checkpoints/policy/3 --device cuda --dtype bfloat16 --slots 2048 --json

Without ``--policy`` one is trained first, on ``--demos`` demonstrations. ``--clock cpu`` counts CPU seconds of this
process: with one thread they are those of a machine with nothing else to do. The last line printed is a JSON object:
``speedup`` (ours as it is used, constrained, against the rival, which cannot be), ``speedup_free`` (ours unconstrained
too), ``turns_per_s``, ``outside_model_share`` (of our constrained run), ``constrained_cost`` (share of the free rate
that constraining costs; negative where it gains).
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from agentprm_core.arguments import any_seed, at_least, count
from agentprm_core.improve.sft import SftSettings, train_sft
from agentprm_core.policy.models import Checkpoint, load_checkpoint, new_model
from agentprm_core.policy.prompt import make_renderer
from agentprm_core.policy.runner import CachedModel, cache_bytes
from agentprm_core.policy.sampler import Sampler
from agentprm_core.policy.tokenizer import train_tokenizer
from agentprm_core.rollout import Start, play, starts
from agentprm_core.types import Episode, Game, Turn
from agentprm_core.worlds import make_world
from agentprm_core.worlds.alfworld.expert import play_expert
from agentprm_core.worlds.alfworld.households import generate_games
from benchmarks.resident import peak_mb

GROWTH = (64, 256, 1024, 4096)
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}


@dataclass(frozen=True)
class Run:
    """One way of playing, measured."""

    episodes: list[Episode]
    seconds: float
    model_seconds: float = float("nan")

    @property
    def turns(self) -> int:
        return sum(episode.length for episode in self.episodes)

    @property
    def rate(self) -> float:
        return self.turns / self.seconds

    @property
    def success(self) -> float:
        return sum(episode.won for episode in self.episodes) / len(self.episodes)


def ours(policy: Checkpoint, begun: Sequence[Start], args: argparse.Namespace, constrained: bool, slots: int) -> Run:
    """The rollout loop; how much of it was spent in the model (its layers and its head)."""
    sampler = Sampler(
        policy,
        slots=slots,
        context=args.context,
        temperature=1.0,
        constrained=constrained,
        max_action_tokens=args.max_action_tokens,
    )
    clock, model = CLOCKS[args.clock], Stopwatch(CLOCKS[args.clock])
    model.put_around(sampler._talks.runner)
    started = clock()
    episodes = list(play(sampler, begun, world_name="alfworld", max_turns=args.max_turns))
    return Run(episodes, clock() - started, model.seconds)


class Stopwatch:
    """Seconds spent inside models' layers and heads, a PRM's likelihood among them."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self.seconds = clock, 0.0

    def put_around(self, runner: CachedModel) -> None:
        for part in ("_trunk", "_head", "log_likelihood"):
            setattr(runner, part, self._around(getattr(runner, part)))

    def _around(self, function: Callable) -> Callable:
        def timed(*args: object) -> object:
            started = self._clock()
            result = function(*args)
            if isinstance(result, torch.Tensor) and result.is_cuda:
                torch.cuda.synchronize()
            self.seconds += self._clock() - started
            return result

        return timed


def reference(policy: Checkpoint, begun: Sequence[Start], args: argparse.Namespace) -> Run:
    """Lock-step batches of ``--reference-batch`` episodes, the history re-read at every turn."""
    clock = CLOCKS[args.clock]
    started, episodes = clock(), []
    torch.manual_seed(args.seed)
    for first in range(0, len(begun), args.reference_batch):
        episodes += _lock_step(policy, begun[first : first + args.reference_batch], args)
    return Run(episodes, clock() - started)


def _lock_step(policy: Checkpoint, begun: Sequence[Start], args: argparse.Namespace) -> list[Episode]:
    worlds = [make_world("alfworld") for _ in begun]
    seen = [world.reset(start.game) for world, start in zip(worlds, begun)]
    turns: list[list[Turn]] = [[] for _ in begun]
    for _ in range(args.max_turns):
        if all(now.done for now in seen):
            break
        said = _generate(policy, [_prompt(policy, *both) for both in zip(turns, seen)], args)
        for i, (world, now, action) in enumerate(zip(worlds, seen, said)):
            if not now.done:  # finished ones were generated for all the same
                valid = action in now.admissible
                turns[i].append(Turn(now.text, action, now.admissible, valid, world.state_key()))
                seen[i] = world.step(action)
    return [
        Episode(start.game.id, start.index, start.seed, tuple(done), now.done)
        for start, done, now in zip(begun, turns, seen)
    ]


def _prompt(policy: Checkpoint, turns: list[Turn], seen: object) -> list[int]:
    history = policy.renderer.episode(turns).input_ids
    return [*history, *policy.renderer.observation(seen.text, not turns, seen.admissible)]


@torch.inference_mode()
def _generate(policy: Checkpoint, prompts: list[list[int]], args: argparse.Namespace) -> list[str]:
    pad, longest = policy.tokenizer.pad_token_id, max(map(len, prompts))
    ids = torch.tensor([[pad] * (longest - len(p)) + p for p in prompts], device=policy.model.device)
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts], device=policy.model.device)
    written = policy.model.generate(
        ids,
        attention_mask=mask,
        do_sample=True,
        temperature=1.0,
        top_k=0,
        max_new_tokens=args.max_action_tokens,
        eos_token_id=policy.renderer.stop_token,
        pad_token_id=pad,
    )
    return [policy.renderer.parse(row)[1] for row in written[:, longest:].tolist()]


def trained_policy(games: Sequence[Game], args: argparse.Namespace) -> Checkpoint:
    """A policy of the default size, good enough to speak the world's language."""
    world = make_world("alfworld")
    demos = [episode for n, g in enumerate(games) if (episode := play_expert(world, g, args.max_turns, n)).won]
    texts = {text for demo in demos for turn in demo.turns for text in (turn.observation, *turn.admissible)}
    tokenizer = train_tokenizer(sorted(texts), args.context)
    model = new_model(
        tokenizer, width=args.model_width, layers=args.layers, heads=4, kv_heads=2, context=args.context, seed=0
    )
    settings = SftSettings(
        learning_rate=2e-3, batch_tokens=2048, seed=0, steps=args.train_steps, observation_weight=0.5
    )
    with tempfile.TemporaryDirectory() as scratch:
        model, _ = train_sft(demos, make_renderer(tokenizer), model, settings, Path(scratch))
    return Checkpoint(model.to(args.device, getattr(torch, args.dtype)).eval(), tokenizer, make_renderer(tokenizer), "")


def growth(policy: Checkpoint, games: Sequence[Game], args: argparse.Namespace) -> list[dict]:
    """Rate and memory at more and more episodes at once."""
    rows = []
    for slots in GROWTH:
        begun = starts(games, -(-slots // len(games)), args.seed)[:slots]
        run = ours(policy, begun, args, constrained=True, slots=slots)
        rows.append(
            {
                "slots": slots,
                "turns": run.turns,
                "turns_per_s": round(run.rate),
                "cache_mb": round(slots * cache_bytes(policy.model, args.context) / 2**20, 1),
                "peak_rss_mb": round(peak_mb()),
                "outside_model_share": round(1 - run.model_seconds / run.seconds, 3),
            }
        )
    return rows


def draw(rows: list[dict], path: Path) -> None:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), dpi=120, layout="constrained")
    slots = [row["slots"] for row in rows]
    rates = [row["turns_per_s"] for row in rows]
    left.plot(slots, rates, "o-")
    left.set(xlabel="episodes at once", ylabel="turns a second", ylim=(0, 1.1 * max(rates)))
    right.plot(slots, [row["cache_mb"] for row in rows], "o-", label="key-value cache")
    right.plot(slots, [row["peak_rss_mb"] for row in rows], "s--", label="process, peak")
    right.set(yscale="log", xlabel="episodes at once", ylabel="MiB")
    right.legend()
    for axes in (left, right):
        axes.set_xscale("log", base=4)
        axes.set_xticks(slots, [f"{n:,}" for n in slots])
        axes.minorticks_off()
    figure.savefig(path, metadata={"Software": None})


def main() -> None:
    args = _arguments()
    torch.set_num_threads(args.threads)
    games = generate_games(args.games, args.seed, "unseen")
    if args.policy:
        policy = load_checkpoint(args.policy, device=args.device, dtype=getattr(torch, args.dtype))
    else:
        policy = trained_policy(generate_games(args.demos, args.seed, "train"), args)
    begun = starts(games, args.episodes, args.seed)
    ours(policy, begun[: args.slots], args, constrained=True, slots=args.slots)  # compiled games, cached sentences
    free = ours(policy, begun, args, constrained=False, slots=args.slots)
    constrained = ours(policy, begun, args, constrained=True, slots=args.slots)
    rival = reference(policy, begun[: args.reference_episodes], args)
    report = {
        "speedup": round(constrained.rate / rival.rate, 1),
        "speedup_free": round(free.rate / rival.rate, 1),
        "turns_per_s": round(constrained.rate),
        "turns_per_s_free": round(free.rate),
        "turns_per_s_reference": round(rival.rate, 1),
        "outside_model_share": round(1 - constrained.model_seconds / constrained.seconds, 3),
        "constrained_cost": round(1 - constrained.rate / free.rate, 3),
        "turns": constrained.turns,
        "turns_reference": rival.turns,
        "success": round(constrained.success, 3),
        "success_free": round(free.success, 3),
        "success_reference": round(rival.success, 3),
        "slots": args.slots,
        "threads": args.threads,
        "clock": args.clock,
        "device": args.device,
    }
    if args.growth:
        report["growth"] = growth(policy, games, args)
        if args.plot:
            draw(report["growth"], args.plot)
    if not args.json:
        for name, value in report.items():
            print(f"{name:>24} {value}")
    print(json.dumps(report))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", type=Path, help="a checkpoint; without it one is trained")
    parser.add_argument("--demos", type=count, default=600, help="demonstrations to train on")
    parser.add_argument("--train-steps", type=count, default=120)
    parser.add_argument("--model-width", type=count, default=128)
    parser.add_argument("--layers", type=count, default=4)
    parser.add_argument("--games", type=count, default=64, help="generated households to play")
    parser.add_argument("--episodes", type=count, default=4, help="episodes a game")
    parser.add_argument("--max-turns", type=count, default=30)
    parser.add_argument("--max-action-tokens", type=at_least(2), default=16)
    parser.add_argument("--context", type=count, default=512)
    parser.add_argument("--slots", type=count, default=256)
    parser.add_argument("--reference-episodes", type=count, default=64)
    parser.add_argument("--reference-batch", type=count, default=128)
    parser.add_argument("--threads", type=count, default=torch.get_num_threads())
    parser.add_argument("--clock", choices=sorted(CLOCKS), default="wall")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--seed", type=any_seed, default=0)
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--plot", type=Path, help="where to draw the growth")
    parser.add_argument("--json", action="store_true", help="only the JSON line")
    return parser.parse_args()


if __name__ == "__main__":
    main()
