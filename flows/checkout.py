"""The pull step of every deployment: a run enters the checkout of the machine it is on."""

from __future__ import annotations

import os
from pathlib import Path

CHECKOUT = "AGENTPRM_CHECKOUT"
"""The environment variable of a worker whose checkout is not the one that its environment was installed from."""


def enter() -> dict[str, str]:
    """``directory``: the folder that the run works in. Raises FileNotFoundError where no ``dvc.yaml`` is there."""
    folder = Path(os.environ.get(CHECKOUT) or Path(__file__).parents[1]).resolve()
    if not (folder / "dvc.yaml").exists():
        raise FileNotFoundError(f"{CHECKOUT}: {folder} has no dvc.yaml; name a checkout of this repository")
    return {"directory": str(folder)}
