"""Critics by name: who learns what a turn is worth. A new one is one file of its name and one line here."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from agentprm_core.errors import DataError

CRITICS = {
    "monte_carlo": "agentprm_core.methods.monte_carlo",
    "relative": "agentprm_core.methods.relative",
    "promise_progress": "agentprm_core.methods.promise_progress",
    "playing_on": "agentprm_core.methods.playing_on",
    "outcome": "agentprm_core.methods.outcome",
    "inverse": "agentprm_core.methods.inverse",
}


def critic_module(name: str) -> ModuleType:
    """The module of a critic. Raises DataError where there is none of this name."""
    if name not in CRITICS:
        raise DataError(f"critic.name: {name!r} is not one of {', '.join(CRITICS)}")
    return import_module(CRITICS[name])
