"""How well policies know what the expert does: their loss on demonstrations of games that none was trained on.

    python -m benchmarks.imitation --policy plain=DIR --policy looking_back=DIR --games data/games --json

The expert plays the games. Each policy reads these episodes, and its loss on the expert's actions is the mean of
−log π(token) over their tokens (nats), end marks included. It says how far a first policy is from its teacher. A policy
that has learnt from its own wins may be further from the teacher and win more.

The last line is one JSON object: ``rows``, one a policy and split: ``action_loss`` with its 95 % interval over games
(``low``, ``high``: a bootstrap), ``action_accuracy`` (share of tokens that are the likeliest), ``observation_loss``,
``games``, ``tokens`` (of actions); ``by_word``: for the first word of the actions (``take``) their number, their loss a
token and ``right``, the share each of whose tokens is the likeliest, which shows what kind of decision a policy lacks;
and, from the second policy on, ``v_first``: its loss minus the first one's on the same games, with ``v_first_low`` and
``v_first_high``.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from agentprm_core.arguments import OneLineParser, any_seed, count, listed, repeated
from agentprm_core.errors import DataError
from agentprm_core.improve.sft import sft_row
from agentprm_core.policy.models import Checkpoint, load_checkpoint, measured_where
from agentprm_core.training.attention import log_probs, packed_attention
from agentprm_core.training.packing import cut, pack
from agentprm_core.types import Episode, Game
from agentprm_core.worlds import world_spec
from agentprm_core.worlds.demonstrations import demonstrate, none_won
from benchmarks.answering import add_json, answer
from benchmarks.placebo import games_of
from benchmarks.tables import crossed

DRAWS = 2000
"""Of the bootstrap over games."""
PASS_TOKENS = 8192
WORDS = 12
"""First words in the table: the most frequent ones."""


def demonstrations(games: Sequence[Game], world: str, seed: int) -> list[Episode]:
    """The episodes that the world's expert wins. Raises DataError where it wins none, or there is no expert."""
    spec, engine = world_spec(world), world_spec(world).make()
    played = [
        demonstrate(
            engine, game, world_name=world, max_turns=spec.of(game).expert_turns, seed=seed + number, knowledge=0.0
        )
        for number, game in enumerate(games)
    ]
    won = [episode for episode in played if episode.won]
    if not won:
        raise DataError(none_won(played, world))
    return won


class Losses(NamedTuple):
    """Of G episodes with A actions in all, in their order."""

    episodes: np.ndarray
    """(G, 5): nats of an episode's actions' tokens, their number, how many are the likeliest; nats of its observations'
    tokens, their number."""
    actions: np.ndarray
    """(A, 3): nats of an action's tokens, their number, how many are the likeliest."""


@torch.no_grad()
def losses(policy: Checkpoint, episodes: Sequence[Episode]) -> Losses:
    """Each policy reads whole episodes, packed."""
    rows = [sft_row(episode, policy.renderer, policy.model, 1.0) for episode in episodes]
    found, of_tokens = np.zeros((len(rows), 5)), []
    model = policy.model.eval()
    with packed_attention(model):
        for numbers in cut(range(len(rows)), [len(row) for row in rows], PASS_TOKENS):
            batch = pack([rows[number] for number in numbers]).to(model.device)
            read_N = batch.columns.loss_weight > 0
            log_prob_P, likeliest_P = log_probs(model, batch, read_N)
            action_P, row_P = batch.columns.is_action[read_N].double(), batch.row[read_N]
            parts = (
                -log_prob_P * action_P,
                action_P,
                likeliest_P * action_P,
                -log_prob_P * (1 - action_P),
                1 - action_P,
            )
            for column, part in enumerate(parts):
                sums = torch.zeros(len(numbers), dtype=torch.float64, device=row_P.device)
                sums.index_add_(0, row_P, part.double())
                found[numbers, column] = sums.cpu().numpy()
            of_actions = torch.stack((-log_prob_P.double(), likeliest_P.double()), 1)[action_P > 0]
            of_tokens.append(of_actions.cpu().numpy())
    tokens = [len(policy.renderer.action(turn.action)) for episode in episodes for turn in episode.turns]
    firsts = np.cumsum([0, *tokens[:-1]])
    nats_likeliest = np.add.reduceat(np.concatenate(of_tokens), firsts, axis=0)
    return Losses(found, np.column_stack((nats_likeliest[:, 0], tokens, nats_likeliest[:, 1])))


def first_word(action: str) -> str:
    """``click`` of ``click[b07]``; what begins with no letter, such as a calculation, has none."""
    found = re.match(r"[^\W\d_]+", action)
    return found[0] if found else "(no word)"


def by_word(actions: np.ndarray, episodes: Sequence[Episode]) -> dict[str, dict]:
    """{first word of an action: figures}, the most frequent first. ``actions``: :attr:`Losses.actions`."""
    words = [first_word(turn.action) for episode in episodes for turn in episode.turns]
    found = {}
    for word, times in Counter(words).most_common():
        nats, tokens, likeliest = actions[[other == word for other in words]].T
        right = float((likeliest == tokens).mean())
        found[word] = {"actions": times, "loss": float(nats.sum() / tokens.sum()), "right": right}
    return found


def told(found: np.ndarray, first: np.ndarray | None, seed: int) -> dict:
    """The figures of one policy and split; ``first``: of the policy that it is held against."""
    picks = np.random.default_rng(seed).integers(0, len(found), (DRAWS, len(found)))

    def drawn(of: np.ndarray) -> np.ndarray:
        sums = of[picks].sum(1)
        return sums[:, 0] / sums[:, 1]

    def interval(values: np.ndarray) -> tuple[float, float]:
        low, high = np.quantile(values, (0.025, 0.975))
        return float(low), float(high)

    nats, tokens, likeliest, seen_nats, seen = found.sum(0)
    low, high = interval(drawn(found))
    row = {"games": len(found), "tokens": int(tokens), "action_loss": nats / tokens, "low": low, "high": high}
    row |= {"action_accuracy": likeliest / tokens, "observation_loss": seen_nats / seen}
    if first is not None:
        low, high = interval(drawn(found) - drawn(first))
        own, other = (of[:, 0].sum() / of[:, 1].sum() for of in (found, first))
        row |= {"v_first": own - other, "v_first_low": low, "v_first_high": high}
    return row


def table(rows: Sequence[dict]) -> str:
    """Markdown: a row a policy, a column a split; then of each split a row a frequent first word, a column a policy."""
    tables = [crossed(rows, "policy", "split", _cell)]
    for split in dict.fromkeys(row["split"] for row in rows):
        of_words = [
            {"action": f"{word} …", "policy": row["policy"], **figures}
            for row in rows
            if row["split"] == split
            for word, figures in islice(row["by_word"].items(), WORDS)
        ]
        tables.append(f"{split}:\n\n{crossed(of_words, 'action', 'policy', _word_cell)}")
    return "\n\n".join(tables)


def _word_cell(figures: Mapping) -> str:
    return f"{figures['loss']:.3f} nats, {figures['right']:.1%} of {figures['actions']} right"


def _cell(row: Mapping) -> str:
    said = (
        f"{row['action_loss']:.3f} [{row['low']:.3f}, {row['high']:.3f}] nats, {row['action_accuracy']:.1%} of tokens"
    )
    if "v_first" in row:
        said += f"; {row['v_first']:+.3f} [{row['v_first_low']:+.3f}, {row['v_first_high']:+.3f}] v. the first"
    return said


def _named(text: str) -> tuple[str, str]:
    name, _, folder = text.rpartition("=")
    return name or folder, folder


def measured(args: argparse.Namespace) -> dict:
    torch.set_num_threads(args.threads)
    policies = {name: load_checkpoint(folder) for name, folder in args.policy}
    worlds = {measured_where(folder) or "alfworld" for _, folder in args.policy}
    if len(worlds) != 1 and not args.world:
        raise DataError(f"--policy: of different worlds, {', '.join(sorted(worlds))}; compare those of one")
    world = args.world or worlds.pop()
    rows = []
    for split in args.split:
        episodes = demonstrations(games_of(args.games, split, world, args.limit), world, args.seed)
        first = None
        for name, policy in policies.items():
            print(f"{name} on {len(episodes)} demonstrations of {split}", file=sys.stderr)
            found = losses(policy, episodes)
            figures = told(found.episodes, first, args.seed)
            words = by_word(found.actions, episodes)
            rows.append({"policy": name, "split": split, **figures, "by_word": words})
            first = found.episodes if first is None else first
    return {"rows": rows, "world": world, "seed": args.seed}


def main() -> None:
    parser = OneLineParser(
        prog="python -m benchmarks.imitation", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--policy", type=_named, action="append", required=True, help="[NAME=]FOLDER; give several")
    parser.add_argument("--games", type=Path, required=True, help="a folder of games, or a Parquet table of them")
    parser.add_argument("--split", type=listed(), default=("seen", "unseen"))
    parser.add_argument("--limit", type=count, help="only so many games of each split, drawn so that kinds mix")
    parser.add_argument("--world", help="a name, or package.module:SPEC (default: the policies')")
    parser.add_argument("--seed", type=any_seed, default=1, help="of the expert and of the bootstrap")
    parser.add_argument("--threads", type=count, default=1)
    add_json(parser)
    args = parser.parse_args()
    names = [name for name, _ in args.policy]
    if (place := repeated(names)) is not None:
        parser.error(f"--policy: {names[place]!r} is there twice: give each policy a name of its own")
    answer("imitation", lambda: measured(args), lambda found: table(found["rows"]), only_json=args.json)


if __name__ == "__main__":
    main()
