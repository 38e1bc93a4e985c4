"""A chat model trained here from scratch: a Hugging Face folder for ``model.source``, where no weights can be fetched.

    agentprm make-chat-model --out ./models/chat --worlds arithmetic --expert distracted --knowledge 0.3 --lost \\
        --dialogues 16000 --steps 900 --threads 1
    make run PROFILE=chat

It learns from dialogues of several worlds: experts' episodes told as chat, and instructions that change what is asked
(:mod:`agentprm_core.chat.dialogues`). A killed run goes on from its last state. The printed digest is what
``model.revision`` can pin.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

from agentprm_core.arguments import OneLineParser, any_seed, called, count, share_or_all
from agentprm_core.chat.dialogues import WORLDS, Speakers, make_dialogues
from agentprm_core.chat.sizes import SIZES, ChatSize
from agentprm_core.datasets import atomic_write
from agentprm_core.errors import EXPECTED, DataError
from agentprm_core.training.settings import PRECISIONS
from tasks.frame.quiet import quiet


def make(asked: argparse.Namespace) -> dict:
    """Train, write the folder, and return what happened."""
    import torch  # here: --help does not wait for it

    from agentprm_core.chat.model import fastest_precision, save_chat_model, train_chat_model
    from agentprm_core.policy.models import checkpoint_digest
    from agentprm_core.training.precision import keep_few_kernels

    if asked.out.exists():
        raise DataError(f"--out: {asked.out} is there already; remove it, or name another folder")
    size = _size(asked)
    torch.set_num_threads(asked.threads)
    keep_few_kernels()
    dialogues = make_dialogues(
        asked.worlds, size.dialogues, asked.seed, Speakers(asked.expert, asked.knowledge, asked.lost)
    )
    precision = asked.precision or fastest_precision()
    scratch = asked.out.with_name(f"{asked.out.name}.training")
    model, tokenizer, metrics = train_chat_model(dialogues, size, precision=precision, seed=asked.seed, scratch=scratch)
    with atomic_write(asked.out) as folder:
        save_chat_model(model, tokenizer, folder)
        (folder / "README.md").write_text(_card(asked, size, precision, metrics))
    shutil.rmtree(scratch, ignore_errors=True)
    last = metrics["curve"][-1]
    return {
        "folder": str(asked.out),
        "digest": checkpoint_digest(asked.out),
        **{name: metrics[name] for name in ("parameters", "vocabulary", "rows", "tokens", "steps")},
        **{name: round(last[name], 4) for name in ("action_loss", "action_accuracy", "observation_loss")},
        "precision": precision,
        "seconds": round(metrics["seconds"]),
    }


def _size(asked: argparse.Namespace) -> ChatSize:
    given = {
        name: getattr(asked, name)
        for name in ("dialogues", "steps", "batch_tokens")
        if getattr(asked, name) is not None
    }
    return replace(SIZES[asked.size], **given)


def _card(asked: argparse.Namespace, size: ChatSize, precision: str, metrics: dict) -> str:
    kinds = "\n".join(f"| {kind} | {count} |" for kind, count in metrics["kinds"].items())
    return (
        "# A small chat model of text worlds\n\n"
        "Trained from scratch by `agentprm make-chat-model` on generated dialogues. It speaks of these "
        "worlds and of nothing else.\n\n"
        f"Size {asked.size}: {metrics['parameters']:,} parameters, {metrics['vocabulary']:,} tokens, context "
        f"{size.context}. Seed {asked.seed}, experts' knowledge {asked.knowledge:g}, "
        f"expert {asked.expert or 'the first one of each world'}, "
        f"lost episodes {'told too' if asked.lost else 'left out'}, "
        f"{metrics['steps']} steps of {size.batch_tokens:,} tokens, {metrics['tokens']:,} tokens read, "
        f"{precision}.\n\n| dialogues | count |\n|---|---|\n{kinds}\n"
    )


def parser(prog: str) -> argparse.ArgumentParser:
    """Of the command line."""
    found = OneLineParser(prog=prog, description=(__doc__ or "").split("\n")[0])
    found.add_argument("--out", type=Path, required=True, help="the folder to write, which must not be there yet")
    found.add_argument("--size", choices=tuple(SIZES), default="small", help="tiny is for tests (default %(default)s)")
    found.add_argument(
        "--worlds",
        nargs="+",
        default=list(WORLDS),
        metavar="WORLD",
        help=f"one that is named twice has twice as many dialogues (default {' '.join(WORLDS)})",
    )
    found.add_argument(
        "--knowledge",
        type=share_or_all,
        default=1.0,
        help="of the experts, 0 to 1: how well they know where things usually are (default %(default)s)",
    )
    found.add_argument("--expert", metavar="NAME", help="another expert than the first one of each world")
    found.add_argument("--lost", action="store_true", help="tell episodes that the expert lost too")
    found.add_argument("--dialogues", type=count, help="made of the worlds' games (default: the size's)")
    found.add_argument("--steps", type=count, help="of the optimizer (default: the size's)")
    found.add_argument("--batch-tokens", type=count, help="of a step (default: the size's)")
    found.add_argument("--seed", type=any_seed, default=1, help="of games, dialogues and weights (default %(default)s)")
    found.add_argument("--threads", type=count, default=2, help="of torch (default %(default)s)")
    found.add_argument(
        "--precision",
        choices=PRECISIONS,
        help="of training (default: bfloat16 where this processor has instructions for it, else float32)",
    )
    found.add_argument("--json", action="store_true", help="the last line is one JSON object")
    return found


def main(prog: str = "python -m tasks.commands.make_chat_model") -> None:
    """Make the model and print what it is."""
    asked = parser(prog).parse_args()
    quiet()
    try:
        figures = make(asked)
    except EXPECTED as error:
        sys.exit(f"{called(prog)}: {error}")
    print(
        f"{figures['folder']}: {figures['parameters']:,} parameters, {figures['tokens']:,} tokens in "
        f"{figures['seconds']} s, {figures['action_accuracy']:.1%} of reply tokens right; digest {figures['digest']}"
    )
    if asked.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
