"""Figures that are still to be sent to MLflow when a campaign ends. Without them MLflow shows it as running."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

from tasks.frame.home import spool_folder
from tasks.frame.sender import REFUSED

SECONDS = 300
"""That sending may take; what is not sent by then is sent by the next stage."""


def send_the_rest(say: Callable[[str], object]) -> None:
    """Send to MLflow what earlier stages of this checkout left. ``say``: told what became of it, where there was
    any."""
    if not any(path.name != REFUSED for path in spool_folder().glob("*.jsonl")):
        return
    command = [sys.executable, "-m", "tasks.commands.flush_tracking"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        say(f"MLflow takes long: the rest of the figures is kept in {spool_folder()} and sent by the next stage")
        return
    say("\n".join((done.stdout + done.stderr).strip().splitlines()[-1:]))
