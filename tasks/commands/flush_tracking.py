"""Send what MLflow could not take while it was away: all that lies in ``.scratch/spool``.

    python -m tasks.commands.flush_tracking

Exit code 1 where MLflow is still away; nothing is lost then.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from agentprm_core.arguments import OneLineParser
from tasks.frame.home import spool_folder
from tasks.frame.secrets import hide_credentials
from tasks.frame.sender import Away, flush, prepare


def main(prog: str = "python -m tasks.commands.flush_tracking", arguments: Sequence[str] | None = None) -> None:
    parser = OneLineParser(prog=prog, description="Send to MLflow what .scratch/spool keeps.")
    parser.parse_args(arguments)
    hide_credentials()
    prepare()
    try:
        count = flush()
    except Away as away:
        sys.exit(f"MLflow is away ({away}): {len(list(spool_folder().glob('*.jsonl')))} files stay in {spool_folder()}")
    print(f"sent what {count} stages had to say")


if __name__ == "__main__":
    main()
