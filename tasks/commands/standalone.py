"""Any checkpoint on any games, without params.yaml:

    agentprm evaluate --policy shipped:households
    agentprm evaluate --policy data/checkpoints/policy/3 --games DIR --split valid_seen --method greedy --json
    agentprm evaluate --policy DIR --prm DIR --method best_of_16    # or --method best_of_n --n 16
    agentprm evaluate --server http://localhost:8000/v1 --model agentprm-1 --speech chat --context 8192 \
        --max-action-tokens 64 --games DIR --split valid_seen     # behind vLLM, SGLang, transformers serve

``--games`` is a folder of the world's published games, or one of tables as the stage ``games`` writes them. Without it
the world makes games. With ``--json`` the last line is one JSON object. """

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from agentprm_core.arguments import OneLineParser, above_zero, address, any_seed, at_least, count, device, not_negative
from agentprm_core.errors import EXPECTED
from agentprm_core.policy.hub import require_named
from agentprm_core.policy.speech import API_KEY, SPEECH
from agentprm_core.search.decoding_config import METHODS, WITHOUT_PRM, DecodingConfig, decoding
from tasks.commands.generated import MEASURED
from tasks.frame.memory import in_memory

STANDALONE = METHODS[:-1]
"""Those that need nothing but checkpoints: the world model of ``lookahead`` is trained in the stage."""
CHOOSING = STANDALONE[2:]
"""Those of them in which a PRM chooses."""
_SIZES = {
    "best_of_n": {"n": "n"},
    "best_trajectory": {"n": "n", "path": "path_prior"},
    "beam": {"width": "width", "samples": "samples", "path": "path_prior"},
}
"""Method → size of :class:`DecodingConfig` → the option that says it."""
_USED_BY = {
    "prior": CHOOSING,
    "temperature": STANDALONE[1:],
    **{
        name: [way for way in CHOOSING if name in _SIZES[way].values()]
        for name in ("n", "width", "samples", "path_prior")
    },
}
"""Option → methods that it says something of."""


def named_way(value: str) -> DecodingConfig:
    """A way of playing by its name in params.yaml, of those that need nothing but checkpoints. For argparse."""
    try:
        found = decoding(value, STANDALONE)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if found.method not in STANDALONE:
        raise argparse.ArgumentTypeError("lookahead needs a world model, which only the stage evaluate trains")
    return found


def _method(value: str) -> str | DecodingConfig:
    return value if value in STANDALONE else named_way(value)


def playing_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of every measurement outside a campaign: which games are played, and how."""
    parser.add_argument("--games", type=Path, help="a folder of published games, or of tables (default: generated)")
    parser.add_argument("--split", default="unseen", help="valid_seen, seen … (default %(default)s)")
    parser.add_argument("--world", help="a name, or package.module:SPEC (default: the games', else the policy's)")
    parser.add_argument("--temperature", type=above_zero, default=1.0, help="of samples (default %(default)s)")
    parser.add_argument(
        "--prior",
        type=not_negative,
        default=0.1,
        metavar="TAU",
        help="of searches: weight of log π̂ beside the score; 0 is the papers' Best-of-N (default %(default)s)",
    )
    parser.add_argument("--free", action="store_true", help="decode freely, not among the admissible commands")
    parser.add_argument("--max-turns", type=count, help="actions an episode (default: the world's)")
    parser.add_argument("--max-action-tokens", type=at_least(2), default=16, help="(default %(default)s)")
    parser.add_argument("--context", type=count, help="tokens an episode may have (default: the model's)")
    parser.add_argument("--slots", type=count, default=128, help="episodes at once (default %(default)s)")
    parser.add_argument(
        "--limit", type=count, help=f"only so many games, drawn so that kinds mix (default: all; {MEASURED} generated)"
    )
    parser.add_argument(
        "--seed", type=any_seed, default=1, help="of samples, and of generated games (default %(default)s)"
    )
    parser.add_argument("--device", type=device, default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32", help="of play")


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = OneLineParser(prog=prog, description="Any checkpoint on any games.")
    playing_arguments(parser)
    who = parser.add_mutually_exclusive_group(required=True)
    who.add_argument("--policy", help="checkpoint folder, shipped:NAME, or owner/name on the Hugging Face hub")
    who.add_argument(
        "--server",
        type=address,
        metavar="URL",
        action="append",
        help=f"an OpenAI-compatible server, as http://localhost:8000/v1; its key is in {API_KEY}; again: servers that "
        "share the games",
    )
    parser.add_argument("--model", help="of --server: the policy's name there")
    parser.add_argument("--speech", choices=tuple(SPEECH), help="of --server: text if trained here, chat if published")
    parser.add_argument(
        "--method",
        type=_method,
        default="greedy",
        help=f"{', '.join(STANDALONE)}, or a name as in params.yaml, which has its sizes: best_of_16, beam_4x4, "
        "best_trajectory_of_8 (default %(default)s)",
    )
    parser.add_argument("--prm", help="the PRM that chooses in a search: checkpoint folder, or shipped:NAME")
    parser.add_argument(
        "--n", type=at_least(2), default=4, help="of best_of_n and best_trajectory (default %(default)s)"
    )
    parser.add_argument("--width", type=count, default=4, help="nodes that beam keeps (default %(default)s)")
    parser.add_argument("--samples", type=count, default=4, help="that beam draws a node (default %(default)s)")
    parser.add_argument(
        "--path-prior",
        action="store_true",
        help="of beam and best_trajectory: log π̂ of all a path's actions, not the last's; of best_trajectory also the "
        "mean of their scores",
    )
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object")
    parser.add_argument("--out", type=Path, metavar="FILE", help="JSON of every game: id, kind, won, actions")
    return parser


def require_server(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """End with a line where a server is named without what it needs beside, or that without a server."""
    given = [name for name in ("model", "speech") if getattr(arguments, name) is not None]
    if given and not arguments.server:
        parser.error(f"--{given[0]}: of --server, and no server is named")
    missing = [f"--{name}" for name in ("model", "speech", "context") if getattr(arguments, name) is None]
    if missing and arguments.server:
        parser.error(f"--server needs {', '.join(missing)}")


def _checked(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The arguments, with ``way``: how is played. What the way of playing does not use is refused."""
    arguments = parser.parse_args(namespace=argparse.Namespace(**dict.fromkeys(("method", *_USED_BY))))
    if arguments.prm and arguments.server:
        parser.error("--prm: of --policy, and a --server plays without one")
    if arguments.prm and arguments.method is None:  # who forgets the search would take greedy's figures for the PRM's
        parser.error(f"--prm: no --method is named; a PRM chooses in {_or(CHOOSING)}, and greedy plays without it")
    arguments.method = arguments.method or parser.get_default("method")
    given = [name for name in _USED_BY if getattr(arguments, name) is not None]
    for name in {*_USED_BY} - {*given}:
        setattr(arguments, name, parser.get_default(name))
    arguments.way = way = _way(parser, arguments, given)
    named = getattr(arguments.method, "name", arguments.method)
    require_server(parser, arguments)
    if arguments.server:
        if way.is_search:
            parser.error(f"--server plays greedy and sample, not {named}")
    elif way.is_search and arguments.prm is None and way.by not in WITHOUT_PRM:
        parser.error(f"--method {named} needs --prm, the PRM that chooses")
    if way.width > arguments.slots:
        parser.error(f"--width {way.width}: a beam needs as many --slots, not {arguments.slots}")
    if arguments.out and arguments.out.is_dir():
        parser.error(f"--out {arguments.out}: is a folder; name a file")
    return arguments


def _way(parser: argparse.ArgumentParser, arguments: argparse.Namespace, given: Sequence[str]) -> DecodingConfig:
    """How is played. Ends with a line where one of the options ``given`` does not belong to it."""
    asked = arguments.method
    method = asked if isinstance(asked, str) else asked.method
    for name in given:
        option, used = f"--{name.replace('_', '-')}", _USED_BY[name]
        if method not in used:
            parser.error(f"{option}: of --method {_or(used)}, and {method} was asked for")
        if not isinstance(asked, str) and name in _said_by(asked):
            parser.error(f"{option}: the name {asked.name} says it already")
    if not isinstance(asked, str):
        return asked
    try:
        sizes = {size: getattr(arguments, option) for size, option in _SIZES.get(method, {}).items()}
        return DecodingConfig(method, **sizes)
    except ValueError as error:
        parser.error(f"--method: {error}")


def _or(names: Sequence[str]) -> str:
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _said_by(way: DecodingConfig) -> set[str]:
    """Options that the name of a way of playing leaves nothing to say."""
    return {*_SIZES.get(way.method, {}).values(), *(["temperature"] if way.temperature is not None else [])}


def main(prog: str = "python -m tasks.evaluate") -> None:
    """Measure and print."""
    arguments = _checked(_parser(prog))
    try:
        for source, kind in ((arguments.policy, "policy"), (arguments.prm, "prm")):
            if source:
                require_named(source, kind)
        from tasks.commands.measuring import measured  # loads torch, which neither --help nor a slip waits for

        with in_memory("evaluate", {"--slots": arguments.slots}):
            figures = measured(arguments)
    except EXPECTED as error:
        sys.exit(f"evaluate: {error}")
    if arguments.json:
        print(json.dumps(figures))
        return
    low, high = figures["ci_low"], figures["ci_high"]
    games = f"{figures['games']} games of {arguments.split}"
    if arguments.games is None:
        games = f"{figures['games']} generated games of {arguments.world}, {arguments.split}, seed {arguments.seed}"
    cut = round(figures["truncated"] * figures["games"])
    outgrown = f"; {cut} of the games outgrew the context of {figures['context']} tokens" if cut else ""
    print(
        f"{figures['decoding']} on {games}: success {figures['success']:.1%} "
        f"[{low:.1%}, {high:.1%}], mean reward {figures['mean_reward']:.3f}, {figures['mean_actions']:.1f} actions, "
        f"{figures['seconds']:.0f} s{outgrown}"
    )
