"""A game as one page: what a policy saw and did, and what its probabilities and PRMs say of every turn.

    agentprm show --game ID --policy data/checkpoints/policy/0 --policy data/checkpoints/policy/3 \
        --prm data/checkpoints/prm/3
    agentprm show --game ID --policy DIR --prm DIR --search beam_4x4 --games DIR --split valid_seen
    agentprm show --campaign .          # a rollout, with labels and branches, of the first game that was played

Two policies stand side by side, aligned by the states that both come to. A beam search is drawn as a tree. The file
needs no network. Games are those of the campaign in the current folder, unless ``--games`` says otherwise; where there
is no campaign, those that ``agentprm play`` generates.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from agentprm_core.arguments import OneLineParser, above_zero, any_seed, at_least, count, device, not_negative
from agentprm_core.datasets import atomic_write
from agentprm_core.errors import EXPECTED
from agentprm_core.policy.hub import require_named
from tasks.commands.standalone import named_way
from tasks.frame.layout import require_campaign


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = OneLineParser(prog=prog, description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--game", metavar="ID", help="which game, by its id or its number (default: the first)")
    parser.add_argument(
        "--policy",
        action="append",
        default=[],
        help="checkpoint folder, shipped:NAME, owner/name on the hub, or NAME= before one of them; at most two",
    )
    parser.add_argument(
        "--prm", action="append", default=[], help="the same of a PRM, at most three; the first chooses"
    )
    parser.add_argument("--out", type=Path, default=Path("show.html"), help="(default %(default)s)")
    parser.add_argument("--search", type=named_way, default="greedy", help="greedy, sample, best_of_16, beam_4x4 …")
    parser.add_argument("--games", type=Path, help="a table, a folder of tables, or with --split published games")
    parser.add_argument("--split", help="valid_seen, unseen …")
    parser.add_argument("--world", help="default: the game's own; of published games alfworld")
    parser.add_argument("--campaign", type=Path, metavar="DIR", help="show its rollout, with labels and branches")
    parser.add_argument("--iteration", type=count, help="of --campaign (default: the last that played the game)")
    parser.add_argument("--temperature", type=above_zero, default=1.0, help="of samples (default %(default)s)")
    parser.add_argument("--prior", type=not_negative, default=0.1, help="as in agentprm evaluate (default %(default)s)")
    parser.add_argument("--free", action="store_true", help="decode freely, not among the admissible commands")
    parser.add_argument("--max-turns", type=count, help="actions (default: the world's)")
    parser.add_argument("--max-action-tokens", type=at_least(2), default=16, help="(default %(default)s)")
    parser.add_argument("--context", type=count, help="tokens an episode may have (default: the model's)")
    parser.add_argument("--device", type=device, default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32", help="of play")
    parser.add_argument(
        "--seed", type=any_seed, default=1, help="of samples, and of generated games (default %(default)s)"
    )
    return parser


def _checked(parser: argparse.ArgumentParser) -> argparse.Namespace:
    arguments = parser.parse_args()
    if not arguments.policy and not arguments.campaign:
        parser.error("nobody plays: give --policy, or --campaign to show what was recorded")
    if len(arguments.policy) > 2 or len(arguments.prm) > 3:
        parser.error("at most two --policy and three --prm fit on a page")
    if arguments.out.is_dir():
        parser.error(f"--out {arguments.out}: is a folder; name a file")
    if arguments.search.is_search and arguments.policy and not arguments.prm:
        parser.error(f"--search {arguments.search.name} needs --prm, the PRM that chooses")
    return arguments


def main(prog: str = "python -m tasks.commands.show") -> None:
    """Write the page."""
    arguments = _checked(_parser(prog))
    try:
        if arguments.campaign:
            require_campaign(arguments.campaign)
        for kind, given in (("policy", arguments.policy), ("prm", arguments.prm)):
            for each in given:
                require_named(each.rpartition("=")[2], kind)
        from tasks.commands.show_page import shown_page  # loads torch, which neither --help nor a slip waits for

        page = shown_page(arguments)
        with atomic_write(arguments.out) as aside:
            aside.write_text(page)
    except EXPECTED as error:
        sys.exit(f"show: {error}")
    print(f"{arguments.out}: open it in a browser ({len(page.encode()) / 1000:.0f} kB)")


if __name__ == "__main__":
    main()
