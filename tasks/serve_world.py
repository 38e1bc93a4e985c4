"""Serves a world to other trainers (TRL, SkyRL and whatever else speaks OpenEnv).

    python -m tasks.serve_world alfworld
    python -m tasks.serve_world my_package.my_module:SPEC --games 5000 --port 8010

Games are generated: ``--games`` of ``train``, a tenth of that of ``seen`` and of ``unseen``. With ``--root`` they are
published ones, at most as many. It needs ``openenv``, in an environment of its own: docs/your-own-world.md. It listens
on this machine alone, unless ``--host`` says otherwise.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path

from agentprm_core.arguments import OneLineParser, any_seed, at_least, called, count, port
from agentprm_core.errors import EXPECTED, DataError
from agentprm_core.types import Game
from agentprm_core.worlds import WorldSpec, to_install, world_spec
from agentprm_core.worlds.base import NoGenerator
from agentprm_core.worlds.game_sources import generated_by, loaded_by

SESSIONS = 256
"""Two processes that play as many episodes at once as the default ``compute.slots``."""


def main(prog: str = "python -m tasks.serve_world") -> None:
    parser = OneLineParser(prog=prog, description=(__doc__ or "").split("\n")[0])
    parser.add_argument("world", help="a name, or package.module:SPEC")
    parser.add_argument("--games", type=at_least(10), default=1000, help="of train (default 1000)")
    parser.add_argument("--root", type=Path, help="published games in place of generated ones: a folder or archive")
    parser.add_argument("--seed", type=any_seed, default=1, help="that generated games are drawn by (default 1)")
    parser.add_argument("--max-turns", type=at_least(0), help="actions an episode (default: the world's; 0: no limit)")
    parser.add_argument("--sessions", type=count, default=SESSIONS, help="most episodes at once (default %(default)s)")
    parser.add_argument("--host", default="127.0.0.1", help="where to listen (default: this machine alone)")
    parser.add_argument("--port", type=port, default=8000, help="to listen at (default %(default)s)")
    asked = parser.parse_args()
    try:
        spec = world_spec(asked.world)
    except DataError as error:
        sys.exit(f"{called(prog)}: {error}")
    try:
        import uvicorn
        from openenv.core.env_server import create_app  # noqa: F401  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError as error:
        sys.exit(f"{called(prog)}: {error.name} is not installed here: see docs/your-own-world.md, 'Serve a world'")
    from agentprm_core.worlds.serving import openenv_app

    try:
        require_free(asked.host, asked.port)
        games = served_games(spec, asked.root, asked.games, asked.seed)
    except EXPECTED as error:
        sys.exit(f"{called(prog)}: {error}")
    except ModuleNotFoundError as error:
        sys.exit(f"{called(prog)}: {asked.world}: {error}{to_install(error)}")
    most = spec.max_turns if asked.max_turns is None else asked.max_turns
    app = openenv_app(spec, games, name=asked.world, max_turns=most, sessions=asked.sessions)
    print(f"{asked.world}: {', '.join(f'{len(of)} games of {split}' for split, of in games.items())}", flush=True)
    uvicorn.run(app, host=asked.host, port=asked.port, log_level="warning")


def require_free(host: str, port: int) -> None:
    """Raises DataError where nobody can listen at that address: uvicorn would find out after the games are made, and
    name no remedy."""
    try:
        with socket.socket(socket.getaddrinfo(host, port)[0][0]) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as uvicorn does: a port just left is free
            probe.bind((host, port))
    except OSError as error:
        raise DataError(f"cannot listen at {host}:{port} ({error.strerror}): give another --port or --host") from error


def served_games(spec: WorldSpec, root: Path | None, count: int, seed: int) -> dict[str, list[Game]]:
    """Games by split: ``count`` of train, a tenth of that of the others; of published games at most as many.

    Raises DataError for a world that has none of the kind or whose generator fails, and whatever reading published ones
    raises.
    """
    counts = {"train": count, "seen": count // 10, "unseen": count // 10}
    if root is None:
        try:
            return {split: generated_by(spec, number, seed, split) for split, number in counts.items()}
        except NoGenerator as error:
            raise DataError(
                f"{spec.name} has no generator: give --root, the folder or archive of its published games"
            ) from error
    if spec.load is None:
        raise DataError(f"--root: {spec.name} has no published games")
    return {ours: loaded_by(spec, root, theirs, counts[ours]) for ours, theirs in spec.published_splits.items()}


if __name__ == "__main__":
    main()
