"""Training a process reward model: whole episodes in one pass, beside one row per (state, action).

The rival does what the reference implementation of paper A does: every turn is a row of its own, the history up to the
action with one target at its end. It is spared what is not the method's: its rows go through the same loop and are
packed without padding too. Same model, same episodes, same targets, same tokens a batch; both lose the same at the
first weights, which ``loss_difference`` shows.

Beside it, what a step costs beside the model: ``loop_overhead`` is our loop's time over that of a bare loop of ten
lines, ``trainer_overhead`` that of transformers' Trainer by its public hooks. ``optimizer_share`` and
``sft_steps_per_s`` are of fine-tuning with Muon, the default's way. On a processor with instructions for bfloat16 the
variables below stand in for one without:

    python -m benchmarks.training --json
    ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2 python -m benchmarks.training --json
    python -m benchmarks.training --device cuda --precision bfloat16 --width 768 --layers 12 --heads 12 \\
        --batch-tokens 65536 --episodes 2048 --peak-tflops 989 --json      # a model of 100 million parameters
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from agentprm_core.arguments import above_zero, count
from agentprm_core.prm.model import new_prm
from agentprm_core.prm.rows import PrmColumns
from agentprm_core.training.attention import packed_attention
from agentprm_core.training.packing import Row, cut, pack
from benchmarks.training_loops import OBJECTIVE, bare_loop, our_loop, sft_steps, transformers_loop

VOCABULARY = 1800
OPENING, OBSERVATION, ACTION = 60, 7, 3
"""Tokens of the room and task, of a later observation and of an action, as the default tokenizer makes them."""


def whole_episodes(episodes: int, turns: int, seed: int) -> list[Row]:
    """Episodes of random tokens of ALFWorld's sizes (± half), a target in [0, 1] at each action's last token."""
    rng, rows = np.random.default_rng(seed), []
    for _ in range(episodes):
        sizes = [OPENING, *[OBSERVATION] * (turns - 1)]
        parts = [int(rng.integers(size // 2, size + size // 2 + 1)) + ACTION for size in sizes]
        ends = np.cumsum(parts) - 1
        columns = PrmColumns.zeros(int(ends[-1]) + 1)
        columns.loss_weight[ends] = columns.is_scored[ends] = 1.0
        columns.q[ends], columns.span[ends] = rng.random(turns), ACTION
        rows.append(Row(rng.integers(5, VOCABULARY, ends[-1] + 1).astype(np.int32), columns))
    return rows


def one_row_a_turn(rows: Sequence[Row]) -> list[Row]:
    """Every target as a row of its own: all tokens up to it."""
    found = []
    for row in rows:
        for end in np.flatnonzero(row.columns.is_scored):
            columns = PrmColumns.zeros(int(end) + 1)
            for name in columns.names():
                getattr(columns, name)[end] = getattr(row.columns, name)[end]
            found.append(Row(row.input_ids[: end + 1], columns))
    return found


def policy_of(args: argparse.Namespace) -> PreTrainedModel:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=args.width,
        intermediate_size=3 * args.width,
        num_hidden_layers=args.layers,
        num_attention_heads=args.heads,
        num_key_value_heads=args.kv_heads,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(config).to(args.device)


def model_of(args: argparse.Namespace) -> PreTrainedModel:
    return new_prm(policy_of(args))


@torch.no_grad()
def loss_of(args: argparse.Namespace, rows: Sequence[Row]) -> float:
    """Mean loss a target, float32, of a model whose scores differ."""
    model, total, weight = model_of(args).eval(), 0.0, 0.0
    torch.nn.init.normal_(model.score.weight, std=0.5)
    with packed_attention(model):
        for numbers in cut(range(len(rows)), [len(row) for row in rows], args.batch_tokens):
            batch = pack([rows[i] for i in numbers]).to(model.device)
            total += OBJECTIVE(model, batch).total.item()
            weight += batch.columns.loss_weight.sum().item()
    return total / weight


def flops_a_token(args: argparse.Namespace, tokens: float) -> float:
    """Multiply-adds × 2 of a forward and backward pass (× 3), attention over half of ``tokens`` on average; without the
    vocabulary's, which a PRM does not use."""
    head = args.width // args.heads
    dense = args.layers * (2 * args.width**2 + 2 * args.width * head * args.kv_heads + 9 * args.width**2)
    return 6 * (dense + args.layers * args.width * tokens)


def measure(args: argparse.Namespace) -> dict:
    """All ways in turn, several rounds, and the median of each ratio: what else the machine does hits all."""
    episodes = whole_episodes(args.episodes, args.turns, 0)
    few = episodes[: args.rival_episodes]
    turns = one_row_a_turn(few)

    def timed(loop, rows: Sequence[Row]) -> float:
        return loop(model_of(args), rows, args.batch_tokens, args.precision)

    timed(our_loop, few)  # warm up
    rounds = [
        (timed(our_loop, episodes), timed(our_loop, turns), timed(bare_loop, episodes),
         timed(transformers_loop, episodes))
        for _ in range(args.rounds)
    ]  # fmt: skip
    seconds_R, rival_R, bare_R, trainer_R = np.array(rounds).T
    targets, rival_targets = args.episodes * args.turns, len(turns)
    tokens = sum(len(row) for row in episodes)
    seconds = float(np.median(seconds_R))
    tflops = flops_a_token(args, tokens / args.episodes) * tokens / seconds / 1e12
    return {
        "token_ratio": sum(len(row) for row in few) / sum(len(row) for row in turns),
        "speedup": float(np.median(rival_R / seconds_R)) * targets / rival_targets,
        "loss_difference": abs(loss_of(args, few) - loss_of(args, turns)),
        "targets_per_s": targets / seconds,
        "rival_targets_per_s": rival_targets / float(np.median(rival_R)),
        "tokens_per_s": tokens / seconds,
        "loop_overhead": float(np.median(seconds_R / bare_R)) - 1,
        "trainer_overhead": float(np.median(trainer_R / bare_R)) - 1,
        **sft_steps(lambda: policy_of(args), episodes, args.batch_tokens, args.precision, args.sft_steps),
        "tflops": tflops,
        "utilisation": tflops / args.peak_tflops if args.peak_tflops else None,
        "parameters": sum(p.numel() for p in model_of(args).parameters()),
        "episodes": args.episodes,
        "rival_episodes": args.rival_episodes,
        "turns": args.turns,
        "rounds": args.rounds,
        "threads": torch.get_num_threads(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=count, default=64)
    parser.add_argument("--rival-episodes", type=count, default=8, help="the rival is timed on the first of them")
    parser.add_argument("--rounds", type=count, default=5)
    parser.add_argument("--sft-steps", type=count, default=30, help="of fine-tuning with Muon")
    parser.add_argument("--turns", type=count, default=20)
    parser.add_argument("--width", type=count, default=128)
    parser.add_argument("--layers", type=count, default=4)
    parser.add_argument("--heads", type=count, default=4)
    parser.add_argument("--kv-heads", type=count, default=2)
    parser.add_argument("--batch-tokens", type=count, default=2048)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--peak-tflops", type=above_zero, help="of the device, for the utilisation")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    args = parser.parse_args()
    figures = measure(args)
    if not args.json:
        print("\n".join(f"{name:22}{value}" for name, value in figures.items()))
        return
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
