"""Critics and methods by name. A new one is one file and one line here, or ``package.module`` of anybody's own."""

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
"""Who learns what a turn is worth."""

METHODS = {
    "expert_iteration": "agentprm_core.methods.expert_iteration",
    "online_dpo": "agentprm_core.methods.online_dpo",
    "rft": "agentprm_core.methods.rft",
    "grpo": "agentprm_core.methods.grpo",
    "gigpo": "agentprm_core.methods.gigpo",
}
"""Who improves the policy."""


def critic_module(name: str) -> ModuleType:
    """The module of a critic. Raises DataError where there is none of this name."""
    return _module(name, CRITICS, "critic", ("Config", "label", "train"))


def method_module(name: str) -> ModuleType:
    """The module of a method. Raises DataError where there is none of this name."""
    return _module(name, METHODS, "method", ("Config", "collect", "update"))


def _module(name: str, known: dict[str, str], kind: str, parts: tuple[str, ...]) -> ModuleType:
    where = known.get(name, name)
    if "." not in where:
        raise DataError(f"{kind}.name: {name!r} is not one of {', '.join(known)}, nor package.module")
    try:
        module = import_module(where)
    except ModuleNotFoundError as error:
        raise DataError(f"{kind}.name: {name!r} cannot be imported: {error}") from error
    missing = [part for part in parts if not hasattr(module, part)]
    if missing:
        raise DataError(f"{kind}.name: {name!r} lacks {', '.join(missing)}: it is no {kind}")
    return module
