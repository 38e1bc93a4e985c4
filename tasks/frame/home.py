"""Whose MLflow database and spool a stage writes to: those of the checkout, also where the stage runs in a copy of it.

Two kinds of copies are removed when their stages have ended: worktrees of campaigns, and the folders in which
``dvc exp run --queue`` and ``--temp`` run. What is left in them is lost, so nothing that must stay is left in them.
"""

from __future__ import annotations

import os
from pathlib import Path

HOME = "AGENTPRM_HOME"
"""The environment variable that names the checkout to a stage in a worktree of it."""
_EXPERIMENTS = (".dvc", "tmp", "exps")


def home() -> Path:
    """The checkout: what AGENTPRM_HOME says, that of a DVC experiment that runs apart, else the current folder, as a
    relative path."""
    if named := os.environ.get(HOME):
        return Path(named)
    return next((place.parents[2] for place in Path.cwd().parents if place.parts[-3:] == _EXPERIMENTS), Path())


def spool_folder() -> Path:
    """Where lines for MLflow wait until they are sent."""
    return home() / ".scratch" / "spool"
