"""Fine-tune a policy on demonstrations in several processes, each with a GPU of its own (DDP), or on CPUs over gloo.

    accelerate launch --num_processes 8 --module recipes.distributed_sft --policy data/checkpoints/policy/0 \
        --demos data/demos/demos.parquet --out data/checkpoints/sft --device cuda --precision bfloat16

All processes call the trainer with the same arguments; the first writes the checkpoint. A step reads ``--batch-tokens``
in every process.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from agentprm_core.datasets import episodes_from_table, read_table, whole
from agentprm_core.improve.sft import SftSettings, train_sft
from agentprm_core.policy.models import load_policy, save_policy
from agentprm_core.training.trainer import OPTIMIZERS, PRECISIONS
from agentprm_core.types import EPISODES


def run(arguments: argparse.Namespace) -> None:
    """Train in this process; write and print in the first."""
    rank, local_rank = (int(os.environ.get(name, 0)) for name in ("RANK", "LOCAL_RANK"))  # the launcher's
    device = f"cuda:{local_rank}" if arguments.device == "cuda" else "cpu"
    policy = load_policy(arguments.policy, device=device)
    settings = SftSettings(
        learning_rate=arguments.learning_rate,
        batch_tokens=arguments.batch_tokens,
        seed=arguments.seed,
        epochs=arguments.epochs,
        optimizer=arguments.optimizer,
        precision=arguments.precision,
    )
    demos = episodes_from_table(read_table(arguments.demos, EPISODES))
    model, figures = train_sft(demos, policy.renderer, policy.model, settings, arguments.scratch)
    if rank == 0:
        with whole(arguments.out) as folder:
            digest = save_policy(model, policy.tokenizer, folder)
        print(f"{arguments.out}: {digest}, {figures['steps']} steps, loss {figures['loss']:.4f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m recipes.distributed_sft", description=__doc__.split("\n")[0])
    parser.add_argument("--policy", required=True, help="checkpoint folder or Hugging Face id to start from")
    parser.add_argument("--demos", type=Path, required=True, help="table of episodes, as the stage demos writes it")
    parser.add_argument("--out", type=Path, required=True, help="checkpoint folder")
    parser.add_argument("--scratch", type=Path, default=Path(".scratch/distributed_sft"))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--precision", choices=PRECISIONS, default="float32")
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="adamw")
    parser.add_argument("--learning-rate", type=float, default=3e-5, help="(default %(default)s, of paper A)")
    parser.add_argument("--epochs", type=float, default=1.0)
    parser.add_argument("--batch-tokens", type=int, default=8192, help="of a process (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    run(parser.parse_args())


if __name__ == "__main__":
    main()
